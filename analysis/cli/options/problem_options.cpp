// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/options/problem_options.hpp"

#include <fmt/format.h>

#include "analysis/cli/options/parse_text.hpp"
#include "common/nearest_names.hpp"
#include "cpu_ref/kernels/features.hpp"

namespace tilescope::cli {
namespace {

constexpr const char* kGroup = "Problem";
constexpr AttentionProblem kDefaultProblem{
    .heads = 8, .heads_kv = 8, .seqlen_q = 1024, .seqlen_k = 1024, .head_dim = 64};

/// Adds an option whose text `parse(field, text)` turns into a value.
template <typename Value, typename Parse>
void add_parsed(CLI::App& command, const std::string& flag, const std::string& field, const char* type,
                std::optional<Value>& target, Parse parse, const std::string& help) {
  command
      .add_option_function<std::string>(
          flag, [&target, field, parse](const std::string& text) { target = parse(field, text); }, help)
      ->type_name(type)
      ->group(kGroup);
}

/// Numbers that are given would be those of tensors, which an option cannot name.
Descale parse_own_descale(const std::string& field, const std::string& text) {
  return parse_descale(field, text == to_string(Descale{Descale::From::given}) ? "" : text);
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

void ProblemOptions::add_to(CLI::App& command) {
  const auto add_integer = [&](const char* flag, const char* field, auto& target, const char* help) {
    add_parsed(command, flag, field, "N", target, parse_integer, help);
  };
  const auto add_name = [&](const char* flag, const char* type, auto& target, const char* help) {
    command.add_option(flag, target, help)->type_name(type)->group(kGroup);
  };
  add_name("--preset", "PRESET", preset_, "a named problem (tilescope list problems)");
  add_name("--model", "MODEL", model_,
           "one layer of a published model (tilescope list models): causal, bf16");
  add_integer("--tp", "tp", tensor_parallel_, "of --model: devices that share the heads; default 1");
  command
      .add_flag("--decode", decode_,
                "of --model: one query a sequence, behind --seqlen keys; default a whole prompt")
      ->group(kGroup);
  add_integer("--batch", "batch", batch_, "B; default 1");
  add_integer("--heads", "heads", heads_, "query heads H; default 8");
  add_integer("--heads-kv", "heads_kv", heads_kv_, "key/value heads; divides --heads, its default");
  add_integer("--seqlen", "seqlen", seqlen_, "N: queries and keys alike, as in 4096 or 4k; default 1k");
  add_integer("--seqlen-q", "seqlen_q", seqlen_q_, "queries, where there are more or fewer than keys");
  add_integer("--seqlen-k", "seqlen_k", seqlen_k_, "keys; default: as many as queries");
  add_integer("--head-dim", "head_dim", head_dim_, "D, 1 ... 256; default 64");
  add_name(
      "--dtype", "fp32|fp16|bf16|fp8e4m3|fp8e5m2", dtype_,
      "element type of the inputs; default fp32, or the kernel's first; of simulate without --kernel fp16");
  command.add_flag("--causal", causal_, "no query sees a later key (masks are aligned bottom-right)")
      ->group(kGroup);
  add_parsed(command, "--window", "window", "L,R", window_, parse_window,
             "keys seen left and right of the diagonal; -1: no limit");
  add_parsed(command, "--key-lengths", "key_lengths", "N,N,...", key_lengths_, parse_integers,
             "keys of each batch entry; those behind are padding, which no query sees");
  add_parsed(command, "--scale", "scale", "X", scale_, parse_number, "softmax scale; default 1/sqrt(D)");
  add_parsed(command, "--dropout", "dropout", "P", dropout_, parse_number,
             "share of the probabilities that is dropped, 0 <= P < 1; default 0");
  add_parsed(
      command, "--descale-q", "descale_q", "X", descale_q_, parse_own_descale,
      "fp8: what stored queries are multiplied by, one number a batch entry and key/value head: X; random, "
      "1/2 ... 2; or of the data, whose largest magnitude is then stored as the type's; default 1");
  add_parsed(command, "--descale-k", "descale_k", "X", descale_k_, parse_own_descale, "the same of keys");
  add_parsed(command, "--descale-v", "descale_v", "X", descale_v_, parse_own_descale, "the same of values");
  add_parsed(
      command, "--descale-block", "descale_block", "MxN", descale_block_, parse_tile,
      "fp8: a descale for every M rows of a head of queries, and N of keys and values: a kernel's tile");
  add_parsed(command, "--seed", "seed", "S", seed_, parse_unsigned, "of inputs and of dropout; default 0");
  add_name("--pass", "fwd|bwd|fwd+bwd", pass_, "direction; default fwd");
}

bool ProblemOptions::given() const {
  return preset_ || model_ || tensor_parallel_ || decode_ || dtype_ || batch_ || heads_ || heads_kv_ ||
         seqlen_ || seqlen_q_ || seqlen_k_ || head_dim_ || window_ || scale_ || dropout_ || seed_ ||
         causal_ || key_lengths_ || descale_q_ || descale_k_ || descale_v_ || descale_block_;
}

bool ProblemOptions::shape_given() const {
  return preset_ || model_ || batch_ || heads_ || heads_kv_ || seqlen_ || seqlen_q_ || seqlen_k_ ||
         head_dim_ || key_lengths_;
}

AttentionProblem ProblemOptions::base() const {
  if (!model_) {
    if (tensor_parallel_) throw BadInput("tp", std::to_string(*tensor_parallel_), "must stand with --model");
    if (decode_)
      throw BadInput("--decode", "given", "must stand with --model; else --seqlen-q 1 says the same");
    return preset_ ? find_preset(*preset_).problem : kDefaultProblem;
  }
  if (preset_) throw BadInput("model", *model_, "must stand without --preset");
  constexpr std::int64_t kPrompt = 8192;
  return layer_problem(find_model(*model_), tensor_parallel_.value_or(1), 1, seqlen_.value_or(kPrompt),
                       decode_);
}

const ModelShape* ProblemOptions::model() const { return model_ ? &find_model(*model_) : nullptr; }

AttentionProblem ProblemOptions::problem() const {
  AttentionProblem p = base();
  if (seqlen_ && (seqlen_q_ || seqlen_k_)) {
    throw BadInput("seqlen", std::to_string(*seqlen_), "must stand without --seqlen-q and --seqlen-k");
  }
  if (key_lengths_) p.batch = static_cast<std::int64_t>(key_lengths_->size());
  p.batch = batch_.value_or(p.batch);
  if (heads_) p.heads = p.heads_kv = *heads_;
  p.heads_kv = heads_kv_.value_or(p.heads_kv);
  if (seqlen_ && !model_) p.seqlen_q = p.seqlen_k = *seqlen_;
  if (seqlen_q_) p.seqlen_q = p.seqlen_k = *seqlen_q_;
  p.seqlen_k = seqlen_k_.value_or(p.seqlen_k);
  p.head_dim = head_dim_.value_or(p.head_dim);
  set_features(p);
  validate(p);
  return p;
}

AttentionProblem ProblemOptions::problem_of(AttentionProblem shapes) const {
  const auto refuse = [](const char* field, const auto& given) {
    if (given) throw BadInput(field, fmt::format("{}", *given), "must be left out, the files tell it");
  };
  refuse("preset", preset_);
  refuse("model", model_);
  refuse("batch", batch_);
  refuse("heads", heads_);
  refuse("heads_kv", heads_kv_);
  refuse("seqlen", seqlen_);
  refuse("seqlen_q", seqlen_q_);
  refuse("seqlen_k", seqlen_k_);
  refuse("head_dim", head_dim_);
  set_features(shapes);
  validate(shapes);
  return shapes;
}

void ProblemOptions::set_features(AttentionProblem& p) const {
  if (dtype_) p.dtype = parse_dtype(*dtype_);
  p.causal = p.causal || causal_;
  if (window_) std::tie(p.window_left, p.window_right) = *window_;
  if (key_lengths_) p.key_lengths = *key_lengths_;
  if (scale_) p.softmax_scale = scale_;
  p.descales.q = descale_q_.value_or(p.descales.q);
  p.descales.k = descale_k_.value_or(p.descales.k);
  p.descales.v = descale_v_.value_or(p.descales.v);
  p.descales.block = descale_block_.value_or(p.descales.block);
  p.dropout = dropout_.value_or(p.dropout);
  p.seed = seed_.value_or(p.seed);
}

AttentionProblem ProblemOptions::in_type_of(const std::vector<const Kernel*>& kernels,
                                            AttentionProblem problem) const {
  const auto computed = [&kernels](ElementType type) {
    return std::all_of(kernels.begin(), kernels.end(),
                       [type](const Kernel* kernel) { return kernel->can.forward.has(feature_of(type)); });
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
  if (!pass_ || *pass_ == "fwd") return {Direction::forward};
  if (*pass_ == "bwd") return {Direction::backward};
  if (*pass_ == "fwd+bwd") return {Direction::forward, Direction::backward};
  throw BadInput("pass", "'" + *pass_ + "'", "must be fwd, bwd or fwd+bwd");
}

}  // namespace tilescope::cli
