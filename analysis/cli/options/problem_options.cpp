// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/options/problem_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "analysis/cli/options/parse_text.hpp"
#include "cpu_ref/kernels/features.hpp"
#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope::cli {
namespace {

constexpr const char* kGroup = "Problem";
constexpr AttentionProblem kDefaultProblem{
    .heads = 8, .heads_kv = 8, .seqlen_q = 1024, .seqlen_k = 1024, .head_dim = 64};

/// Numbers that are given would be those of tensors, which an option cannot name.
Descale parse_own_descale(const std::string& field, const std::string& text) {
  return parse_descale(field, text == to_string(Descale{Descale::From::given}) ? "" : text);
}

using Problem = AttentionProblem;
using Text = const std::string&;

template <std::int64_t Problem::*... members>
void set_integers(Problem& problem, Text field, Text value) {
  ((problem.*members = parse_integer(field, value)), ...);
}

/// H, or H/Hkv as problems are described. Without Hkv as many query heads to a key/value head as a preset
/// has, where they divide, else one; one key/value head stays one.
void set_heads(Problem& problem, Text field, Text value) {
  if (const std::size_t slash = value.find('/'); slash != std::string::npos) {
    problem.heads = parse_integer(field, value.substr(0, slash));
    problem.heads_kv = parse_integer(field, value.substr(slash + 1));
    return;
  }
  if (problem.heads_kv == 1 && problem.heads > 1) {
    problem.heads = parse_integer(field, value);
    return;
  }
  const bool grouped = problem.heads_kv > 0 && problem.heads % problem.heads_kv == 0;
  const std::int64_t group = grouped ? std::max<std::int64_t>(1, problem.heads / problem.heads_kv) : 1;
  problem.heads = parse_integer(field, value);
  problem.heads_kv = problem.heads % group == 0 ? problem.heads / group : problem.heads;
}

template <Descale Descales::*member>
void set_descale(Problem& problem, Text field, Text value) {
  problem.descales.*member = parse_own_descale(field, value);
}

/// Beyond it scores of usual inputs overflow, and nothing can be judged.
constexpr double kLargestScale = 1e30;

void set_scale(Problem& problem, Text field, Text value) {
  const double scale = parse_number(field, value);
  if (std::isfinite(scale) && std::abs(scale) > kLargestScale) {
    throw BadInput(field, value, fmt::format("must lie in {:g} ... {:g}", -kLargestScale, kLargestScale));
  }
  problem.softmax_scale = scale;
}

using enum ProblemOption::Names;
constexpr ProblemOption kPlainOptions[] = {
    {"preset", "PRESET", base, [](Problem& p, Text, Text value) { p = find_preset(value).problem; },
     "a named problem (tilescope list problems)"},
    {"model", "MODEL", base, [](Problem&, Text, Text value) { find_model(value); },
     "one layer of a published model (tilescope list models): causal, bf16"},
    {"tp", "N", base, [](Problem&, Text field, Text value) { parse_integer(field, value); },
     "of --model: devices that share the heads; default 1"},
    {"decode", "", base, [](Problem&, Text, Text) {},
     "of --model: one query a sequence, behind --seqlen keys; default a whole prompt"},
    {"batch", "N", shape, set_integers<&Problem::batch>, "B; default 1"},
    {"heads", "N", shape, set_heads, "query heads H, or H/Hkv as in 32/8; default 8"},
    {"heads_kv", "N", shape, set_integers<&Problem::heads_kv>,
     "key/value heads; divides --heads; default: as many, or in a preset's groups where these divide "
     "--heads"},
    {"seqlen", "N", shape, set_integers<&Problem::seqlen_q, &Problem::seqlen_k>,
     "N: queries and keys alike, as in 4096 or 4k; default 1k"},
    {"seqlen_q", "N", shape, set_integers<&Problem::seqlen_q, &Problem::seqlen_k>,
     "queries, where there are more or fewer than keys"},
    {"seqlen_k", "N", shape, set_integers<&Problem::seqlen_k>, "keys; default: as many as queries"},
    {"head_dim", "N", shape, set_integers<&Problem::head_dim>, "D, 1 ... 576; default 64"},
    {"head_dim_v", "N", shape, set_integers<&Problem::head_dim_v>,
     "columns of values and of the output; default: those of queries and keys, D"},
    {"dtype", "fp32|fp16|bf16|fp8e4m3|fp8e5m2", feature,
     [](Problem& p, Text, Text value) { p.dtype = parse_dtype(value); },
     "element type of the inputs; default fp32, or the first that the kernel takes; of simulate without "
     "--kernel: fp16"},
    {"kv_dtype", "fp8e4m3", feature,
     [](Problem& p, Text, Text value) {
       p.kv_dtype = parse_dtype(value);
       if (p.kv_dtype == p.dtype) p.kv_dtype.reset();
     },
     "that keys and values are stored in beside wider queries, as in a cache of them; default: as --dtype"},
    {"causal", "", feature, [](Problem& p, Text, Text) { p.causal = true; },
     "no query sees a later key (masks are aligned bottom-right)"},
    {"window", "L,R", feature,
     [](Problem& p, Text field, Text value) {
       std::tie(p.window_left, p.window_right) = parse_window(field, value);
     },
     "keys seen left and right of the diagonal; -1: no limit"},
    {"key_lengths", "N,N,...", feature,
     [](Problem& p, Text field, Text value) { p.key_lengths = parse_integers(field, value); },
     "keys of each batch entry; those behind are padding, which no query sees"},
    {"page_size", "N", feature,
     [](Problem& p, Text field, Text value) { p.page_size = parse_integer(field, value); },
     "keys of a page: K and V lie in pages in any order, as a table says (PagedAttention); a power of 2"},
    {"mask", "MASK", feature, [](Problem& p, Text field, Text value) { p.mask = parse_mask(field, value); },
     "beside these: sink:4, prefix:512, documents:100,300, ... (tilescope list masks); none"},
    {"scale", "X", feature, set_scale, "softmax scale; default 1/sqrt(D)"},
    {"dropout", "P", feature,
     [](Problem& p, Text field, Text value) { p.dropout = parse_number(field, value); },
     "share of the probabilities that is dropped, 0 <= P < 1; default 0"},
    {"descale_q", "X", feature, set_descale<&Descales::q>,
     "fp8: what stored queries are multiplied by, one number a batch entry and key/value head: X; random, "
     "1/2 ... 2; or of the data, whose largest magnitude is then stored as the type's; default 1"},
    {"descale_k", "X", feature, set_descale<&Descales::k>, "the same of keys"},
    {"descale_v", "X", feature, set_descale<&Descales::v>, "the same of values"},
    {"descale_block", "MxN", feature,
     [](Problem& p, Text field, Text value) { p.descales.block = parse_tile(field, value); },
     "fp8: a descale for every M rows of a head of queries, and N of keys and values: a kernel's tile"},
    {"shared_kv", "", shape, [](Problem& p, Text, Text) { p.shared_kv = true; },
     "values are the first columns of keys, as of absorbed multi-head latent attention"},
    {"seed", "S", feature, [](Problem& p, Text field, Text value) { p.seed = parse_unsigned(field, value); },
     "of inputs and of dropout; default 0"},
};

/// These and one of each score modifier.
std::vector<ProblemOption> all_options() {
  std::vector<ProblemOption> all(std::begin(kPlainOptions), std::end(kPlainOptions));
  for (const ScoreModRow& row : score_mod_rows()) {
    all.push_back({row.name, row.type, feature,
                   [](Problem& p, Text name, Text value) { set_score_mod(p.score_mods, name, value); },
                   row.help});
  }
  return all;
}

std::string flag_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

}  // namespace

void refuse_v_transposed(CLI::App& command) {
  constexpr const char* kHidden = "";
  command
      .add_flag_callback(
          "--v-transposed",
          [] {
            throw BadInput(
                "--v-transposed must be left out: no kernel reads values stored (B, Hkv, D, Nk); "
                "`tilescope run --v FILE.npy --v-transposed` puts a file of them in order");
          })
      ->group(kHidden);
}

std::span<const ProblemOption> problem_options() {
  static const std::vector<ProblemOption> options = all_options();
  return options;
}

void ProblemOptions::add_to(CLI::App& command) {
  for (const ProblemOption& option : problem_options()) {
    const auto take = [this, &option](const std::string& value) {
      Problem ignored;
      option.set(ignored, option.name, value);  // refuses what cannot be, whether or not it is asked for
      given_[option.name] = value;
    };
    const std::string flag = flag_of(option.name);
    if (*option.type == 0) {
      command
          .add_flag_callback(
              flag, [take] { take(""); }, option.help)
          ->group(kGroup);
    } else {
      command.add_option_function<std::string>(flag, take, option.help)
          ->type_name(option.type)
          ->group(kGroup);
    }
  }
  add_value(command, "--pass", pass_, "fwd|bwd|fwd+bwd", "direction; default fwd", kGroup);
}

const std::string* ProblemOptions::text(std::string_view name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? nullptr : &found->second;
}

bool ProblemOptions::shape_given() const {
  return text("preset") || text("model") || text("key_lengths") ||
         std::ranges::any_of(problem_options(), [this](const ProblemOption& option) {
           return option.names == shape && text(option.name);
         });
}

AttentionProblem ProblemOptions::base() const {
  const std::string *model = text("model"), *tp = text("tp"), *preset = text("preset");
  if (!model) {
    if (tp) throw BadInput("tp", *tp, "must stand with --model");
    if (text("decode"))
      throw BadInput("--decode", "given",
                     "must stand with --model; else say --seqlen-q 1 and --seqlen-k KEYS");
    return kDefaultProblem;
  }
  if (preset) throw BadInput("model", *model, "must stand without --preset");
  for (const char* const of_the_model : {"heads", "heads_kv", "head_dim", "head_dim_v"}) {
    if (const std::string* const value = text(of_the_model)) {
      throw BadInput(flag_of(of_the_model), *value,
                     "must stand without --model, whose layer has its own; --tp N shares its heads out");
    }
  }
  constexpr std::int64_t kPrompt = 8192;
  const std::string* const seqlen = text("seqlen");
  return layer_problem(find_model(*model), tp ? parse_integer("tp", *tp) : 1, 1,
                       seqlen ? parse_integer("seqlen", *seqlen) : kPrompt, text("decode") != nullptr);
}

bool ProblemOptions::has_length() const {
  return text("preset") || text("model") || text("seqlen") || text("seqlen_q") || text("seqlen_k");
}

const ModelShape* ProblemOptions::model() const {
  return text("model") ? &find_model(*text("model")) : nullptr;
}

AttentionProblem ProblemOptions::problem() const {
  Problem p = base();
  if (text("seqlen") && (text("seqlen_q") || text("seqlen_k"))) {
    throw BadInput("seqlen", *text("seqlen"), "must stand without --seqlen-q and --seqlen-k");
  }
  for (const ProblemOption& option : problem_options()) {
    const bool in_base = text("model") && std::string_view(option.name) == "seqlen";
    if (const std::string* value = text(option.name); value && !in_base) option.set(p, option.name, *value);
  }
  if (text("key_lengths") && !text("batch")) p.batch = static_cast<std::int64_t>(p.key_lengths.size());
  if (p.mask.any() && !has_length()) {
    const MaskModel& model = mask_model(p.mask.kind);
    if (model.seqlen) p.seqlen_q = p.seqlen_k = model.seqlen(p.mask);
  }
  if (const std::string* const columns = text("head_dim_v"); columns && p.head_dim_v == 0) {
    throw BadInput("head_dim_v", *columns, fmt::format("must lie in 1 ... {}", kMaxHeadDim));
  }
  if (p.head_dim_v == p.head_dim) p.head_dim_v = 0;
  validate(p);
  return p;
}

AttentionProblem ProblemOptions::problem_of(AttentionProblem shapes) const {
  for (const ProblemOption& option : problem_options()) {
    const std::string* const value = text(option.name);
    if (!value) continue;
    if (option.names != feature) {
      throw BadInput(option.name, value->empty() ? "given" : *value, "must be left out: the files tell it");
    }
    option.set(shapes, option.name, *value);
  }
  validate(shapes);
  return shapes;
}

AttentionProblem ProblemOptions::in_type_of(const std::vector<const Kernel*>& kernels,
                                            AttentionProblem problem) const {
  const auto computed = [&kernels](ElementType type) {
    return std::ranges::all_of(
        kernels, [type](const Kernel* kernel) { return kernel->can.forward.has(feature_of(type)); });
  };
  if (type_given() || computed(problem.dtype)) return problem;
  for (const ElementType type : kElementTypes) {
    if (!computed(type)) continue;
    problem.dtype = type;
    break;
  }
  return problem;
}

std::vector<Direction> ProblemOptions::directions() const {
  return parse_directions("pass", pass_.value_or("fwd"));
}

}  // namespace tilescope::cli
