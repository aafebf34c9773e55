// SPDX-License-Identifier: Apache-2.0
// Runs one mutant of the GPU kernels after the other and looks whether `verify`'s checks see it on the
// device. Prints a Markdown table; beside each mutant stands what a plain tolerance of 1e-2 would have said,
// and the first divergence that --locate names. Fails if a mutant survives, if locate blames another place
// than the mutant declares, or if a check complains where no mutant is active. Exits with 77 (skipped) where
// there is no device.
// Usage: test_gpu_mutants [--suggest] [--only=NAME] [--every=N [--first=I]] [--stop-when-seen]
// --every=N: each N-th mutant, from the I-th on. --stop-when-seen: no case is run behind the one that catches
// a mutant as declared. (--from, --kept, --tried and --by-tolerance: what the program tells itself.)
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/locate.hpp"
#include "gpu/kernels/flash3/flash3.hpp"
#include "gpu/launch/device.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/mutants/active_mutant.hpp"
#include "tests/mutants/mutant.hpp"

namespace tilescope {

void activate_on_device(int mutant);
/// Whether this program has the kernel's launches.
bool is_mutated(const Kernel& kernel);

namespace {

constexpr double kPlainTolerance = 1e-2;

/// One kernel on one problem, with what its mirror gives and what it gives itself when no mutant is active.
class Case {
 public:
  Case(const Kernel& kernel, Direction direction, const AttentionProblem& problem, InputKind inputs,
       std::optional<BackwardOrder> order)
      : kernel(&kernel), direction(direction), problem_(problem), inputs_(inputs) {
    options = kernel.default_options(problem);
    options.set_query_splits(1);  // which small problems would all have
    if (order) options.backward = *order;
  }

  const Kernel* kernel;
  Direction direction;
  ProgramOptions options;

  struct Expected {
    Reference reference;
    TensorSet mirror;
    std::vector<TensorVerdict> clean;
  };
  /// Made when it is asked for first.
  Expected& expected() {
    if (expected_) return *expected_;
    Reference reference(problem_, inputs_, direction);
    reference.run(*mirror_of(*kernel), options, direction);
    TensorSet mirror = reference.take_outputs();
    std::vector<TensorVerdict> clean = reference.judge(*kernel, options, direction).tensors;
    return expected_.emplace(Expected{std::move(reference), std::move(mirror), std::move(clean)});
  }

 private:
  AttentionProblem problem_;
  InputKind inputs_;
  std::optional<Expected> expected_;
};

Case& add_case(const Kernel& kernel, Direction direction, const AttentionProblem& problem, InputKind inputs,
               std::optional<BackwardOrder> order, std::vector<Case>& cases) {
  return cases.emplace_back(kernel, direction, problem, inputs, order);
}

/// Several tiles a side, ragged by one row, as the kernel's own tiles cut them; two groups of two query
/// heads.
AttentionProblem ragged_problem(const Kernel& kernel, ElementType dtype, int head_dim) {
  AttentionProblem problem{.batch = 2, .heads = 4, .heads_kv = 2, .head_dim = head_dim, .seed = 7};
  problem.dtype = dtype;
  const TileShape tile = kernel.default_options(problem)[PassName::forward].tile;
  problem.seqlen_q = 2 * tile.block_m - 1;
  problem.seqlen_k = 4 * tile.block_n - 1;
  return problem;
}

/// The same with a window, dropout and a negative scale.
AttentionProblem windowed(const Kernel& kernel, AttentionProblem problem) {
  problem.window_left = kernel.default_options(problem)[PassName::forward].tile.block_n + 2;
  problem.window_right = 3;
  if (kernel.can.forward.has(Feature::dropout)) problem.dropout = 0.25;
  problem.softmax_scale = -0.1;
  return problem;
}

/// The same with padding behind the keys of the second batch entry.
AttentionProblem padded(AttentionProblem problem) {
  problem.key_lengths = {problem.seqlen_k, problem.seqlen_k / 2 + 3};
  return problem;
}

/// The same with values of other columns than keys, which need not be padded up to a warp's.
AttentionProblem with_values(AttentionProblem problem, int head_dim, int value_dim) {
  problem.head_dim = head_dim;
  problem.head_dim_v = value_dim;
  return problem;
}

/// Documents side by side, of which one ends inside a tile, with every score modifier.
AttentionProblem varied(AttentionProblem problem) {
  problem.causal = true;
  problem.seqlen_q = problem.seqlen_k;
  problem.mask = {MaskKind::documents, {problem.seqlen_k - 50, 50}};
  problem.score_mods = {.softcap = 2.0, .alibi = true, .learned_sink = true, .log_bias = 0.5};
  return problem;
}

/// The row of gpu:flash3 with the q tiles, unsplit, that fill a device: the program of mutants has these
/// alone.
const Kernel& flash3_with_whole_tiles() {
  static const Kernel row = [] {
    Kernel whole = find_gpu_kernel(Flash3::name).row;
    whole.default_options = [](const AttentionProblem& problem) {
      ProgramOptions options = Flash3::default_options(problem);
      if (is_fp8(problem.dtype)) return options;
      options.set_tile(Direction::forward, flash3_forward_shape(problem).tile);
      options.splits = {};
      options.pack_gqa = false;
      return options;
    };
    return whole;
  }();
  return row;
}

/// gpu:decode and gpu:mla-decode in three splits, of fp8 keys too, and in pages, where one CTA walks all of
/// them, first, being quick. Each kernel causal; with all features; with outliers. The other backward orders
/// with all features, that of the tensor cores in bf16 with head dimension 128; Hopper's at every head
/// dimension that it is compiled for, and there with shared kv tiles. With padding, with documents and
/// modified scores, in pages, and with tiles cut finer, those that can.
std::vector<Case> prepare_cases() {
  std::vector<Case> cases;
  if (const Kernel& decode = find_gpu_kernel("gpu:decode").row; is_mutated(decode)) {
    AttentionProblem few = ragged_problem(decode, ElementType::fp16, 64);  // 12 rows of 4 heads
    few.heads = 8;
    few.seqlen_q = 3;
    few.causal = true;
    AttentionProblem more = padded(few);  // 20 rows; the second entry has three of four tiles
    more.seqlen_q = 5;
    AttentionProblem in_small_pages = few, in_large_pages = more;
    in_small_pages.page_size = 16;
    in_small_pages.seqlen_k *= 2;  // more tiles than a ring of them has stages
    in_large_pages.page_size = 128;
    AttentionProblem narrow = more;  // whose tiles have twice the keys
    narrow.seqlen_k *= 2;
    narrow.key_lengths = {narrow.seqlen_k, narrow.seqlen_k / 2 + 3};
    narrow.kv_dtype = ElementType::fp8e4m3;
    narrow.descales.k = narrow.descales.v = {Descale::From::random};
    for (const AttentionProblem& problem : {few, more, in_small_pages, in_large_pages, narrow}) {
      add_case(decode, Direction::forward, problem, InputKind::normal, std::nullopt, cases).options.splits = {
          SplitPolicy::Kind::number, problem.page_size > 0 ? 1 : 3};
    }
  }
  if (const Kernel& mla = find_gpu_kernel("gpu:mla-decode").row; is_mutated(mla)) {
    AttentionProblem few{.batch = 2,  // 12 rows of 4 heads
                         .heads = 8,
                         .heads_kv = 2,
                         .seqlen_q = 3,
                         .seqlen_k = 255,
                         .head_dim = 576,
                         .dtype = ElementType::fp16,
                         .causal = true,
                         .seed = 7,
                         .head_dim_v = 512,
                         .shared_kv = true};
    AttentionProblem more = padded(few);  // 70 rows in two tiles
    more.heads = 28;
    more.seqlen_q = 5;
    AttentionProblem in_small_pages = padded(few), in_large_pages = in_small_pages;
    in_small_pages.page_size = 16;
    in_large_pages.page_size = 128;  // of two tiles
    for (const AttentionProblem& problem : {few, more, in_small_pages, in_large_pages}) {
      add_case(mla, Direction::forward, problem, InputKind::normal, std::nullopt, cases).options.splits = {
          SplitPolicy::Kind::number, problem.page_size > 0 ? 1 : 3};
    }
  }
  for (const GpuKernel& rung : gpu_ladder()) {
    const Kernel& kernel = rung.row.name == Flash3::name ? flash3_with_whole_tiles() : rung.row;
    if (!is_mutated(kernel)) continue;
    const bool simt = kernel.name == std::string_view("gpu:flash2-simt");
    const AttentionProblem plain = ragged_problem(kernel, simt ? ElementType::fp32 : ElementType::fp16, 64);
    AttentionProblem causal = plain;
    causal.causal = true;
    const bool ordered = kernel.algorithm == Algorithm::flash2;
    const auto fused = ordered ? std::optional(BackwardOrder::fused) : std::nullopt;
    add_case(kernel, Direction::backward, causal, InputKind::normal, fused, cases);
    add_case(kernel, Direction::backward, windowed(kernel, plain), InputKind::normal, fused, cases);
    Case& full = add_case(kernel, Direction::backward, plain, InputKind::outlier, fused, cases);
    if (simt) {
      add_case(kernel, Direction::backward, windowed(kernel, plain), InputKind::normal,
               BackwardOrder::q_outer, cases);
      add_case(kernel, Direction::backward, windowed(kernel, plain), InputKind::normal, BackwardOrder::split,
               cases);
    } else if (kernel.name == std::string_view("gpu:flash3-basic")) {
      AttentionProblem wider = ragged_problem(kernel, ElementType::fp16, 128);
      wider.causal = true;
      add_case(kernel, Direction::backward, wider, InputKind::normal, fused, cases);
    } else if (kernel.name == std::string_view("gpu:flash3")) {
      full.options.dq_start = DqStart::in_order;  // of which CTAs that persist know nothing
      add_case(kernel, Direction::backward, windowed(kernel, ragged_problem(kernel, ElementType::fp16, 256)),
               InputKind::normal, fused, cases);
      AttentionProblem bytes = ragged_problem(kernel, ElementType::fp8e4m3, 128);
      bytes.causal = true;  // the second tile that a row sees raises its maximum
      add_case(kernel, Direction::forward, bytes, InputKind::normal, std::nullopt, cases);
      AttentionProblem grouped = ragged_problem(kernel, ElementType::fp16, 128);
      grouped.causal = true;
      add_case(kernel, Direction::forward, grouped, InputKind::outlier, std::nullopt, cases);
      Case& split = add_case(kernel, Direction::forward, plain, InputKind::normal, std::nullopt, cases);
      split.options.splits = {SplitPolicy::Kind::number, 3};
      split.options.pack_gqa = true;
      // More items than CTAs, in half of which rows see no key.
      AttentionProblem many = causal;
      many.batch = 50;
      many.seqlen_k = 40;
      add_case(kernel, Direction::forward, many, InputKind::normal, std::nullopt, cases);
      AttentionProblem tables = causal;  // a full tile between partial ones
      tables.seqlen_q = 300;
      tables.seqlen_k = 700;
      tables.mask = {MaskKind::prefix, {300}};
      add_case(kernel, Direction::forward, tables, InputKind::normal, std::nullopt, cases);
      tables.seqlen_k = 350;  // of which the prefix shows some behind the diagonal
      tables.score_mods.alibi = true;
      add_case(kernel, Direction::forward, tables, InputKind::normal, std::nullopt, cases);
      AttentionProblem modified = plain;  // keys on both sides of the diagonal, in each tile
      modified.score_mods = {.alibi = true, .learned_sink = true};
      add_case(kernel, Direction::forward, modified, InputKind::normal, std::nullopt, cases);
      add_case(kernel, Direction::forward, modified, InputKind::outlier, std::nullopt, cases);
      modified.causal = true;  // rows that see no key
      modified.seqlen_k = modified.seqlen_q - 70;
      modified.softmax_scale = -0.1;
      add_case(kernel, Direction::forward, modified, InputKind::normal, std::nullopt, cases);
      for (const double cap : {2.0, 60.0}) {  // which scores pass, and which they stay below
        AttentionProblem capped = causal;
        capped.score_mods.softcap = cap;
        add_case(kernel, Direction::forward, capped, InputKind::normal, std::nullopt, cases);
      }
      AttentionProblem three = causal;  // the third kv tile of a q tile waits for two
      three.seqlen_k = 3 * kernel.default_options(causal)[PassName::dkdvdq].tile.block_n - 1;
      for (const int splits : {1, 2}) {
        add_case(kernel, Direction::backward, three, InputKind::normal, BackwardOrder::ordered, cases)
            .options.set_query_splits(splits);
      }
      for (const int head_dim : {96, 128, 192, 256}) {
        AttentionProblem wider = ragged_problem(kernel, ElementType::fp16, head_dim);
        wider.causal = true;
        add_case(kernel, Direction::backward, wider, InputKind::normal, fused, cases);
        add_case(kernel, Direction::backward, wider, InputKind::normal, fused, cases).options.query_splits =
            4;  // both query heads of a group, and halves of their queries
      }
    } else if (ordered) {
      add_case(kernel, Direction::backward, windowed(kernel, ragged_problem(kernel, ElementType::bf16, 128)),
               InputKind::normal, BackwardOrder::split, cases);
    }
    if (kernel.can.forward.has(Feature::value_dim)) {
      const bool both = kernel.can.backward.has(Feature::value_dim);
      const Direction direction = both ? Direction::backward : Direction::forward;
      for (const auto& [head_dim, value_dim] : {std::pair{64, 40}, {24, 64}, {192, 128}, {192, 104}}) {
        if (head_dim > 64 && !both) {  // the shape of its own, forward
          const AttentionProblem wide = ragged_problem(kernel, ElementType::fp16, head_dim);
          add_case(kernel, direction, with_values(wide, head_dim, value_dim), InputKind::normal, std::nullopt,
                   cases);
        } else if (head_dim <= 64 && both) {
          add_case(kernel, direction, with_values(causal, head_dim, value_dim), InputKind::normal, fused,
                   cases);
        }
      }
    }
    if (ordered && kernel.can.forward.has(Feature::key_padding)) {
      add_case(kernel, Direction::backward, padded(causal), InputKind::normal, fused, cases);
    }
    if (ordered && kernel.can.backward.has(Feature::mask_rules)) {
      add_case(kernel, Direction::backward, varied(plain), InputKind::normal, fused, cases);
      add_case(kernel, Direction::backward, varied(ragged_problem(kernel, ElementType::bf16, 128)),
               InputKind::normal, BackwardOrder::split, cases);
    }
    if (kernel.can.forward.has(Feature::paged_keys)) {
      AttentionProblem in_pages = padded(causal);
      in_pages.page_size = 16;
      add_case(kernel, Direction::forward, in_pages, InputKind::normal, std::nullopt, cases);
    }
    if (kernel.smallest_part > 0) {
      constexpr int kSlices = 4;
      add_case(kernel, Direction::backward, causal, InputKind::normal, fused, cases).options.diagonal_slices =
          kSlices;
    }
  }
  const Kernel& split_k = find_gpu_kernel("gpu:split-k").row;
  if (!is_mutated(split_k)) return cases;
  const Kernel& standard = find_gpu_kernel("gpu:standard-mma").row;  // beside the ladder, as it is
  AttentionProblem causal = ragged_problem(standard, ElementType::fp16, 64);
  causal.causal = true;
  add_case(standard, Direction::backward, causal, InputKind::normal, std::nullopt, cases);
  add_case(split_k, Direction::forward, ragged_problem(split_k, ElementType::fp16, 64), InputKind::normal,
           std::nullopt, cases);
  return cases;
}

struct Sighting {
  std::string check;  // the first that saw the mutant, and where; empty: none
  std::map<std::string, std::string>
      at;                        // "PASS QUANTITY TILE" that locate blames, by kernel that was refused
  std::string first_divergence;  // in words, of the first such kernel
  bool by_plain_tolerance = false;
};

/// The first tensor that a verdict refuses.
std::optional<std::string> refused(const Verdict& verdict) {
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (!tensor.passed) return std::string(to_string(tensor.tensor));
  }
  return std::nullopt;
}

bool plain_tolerance_sees(Case& c, const Verdict& verdict) {
  for (std::size_t i = 0; i < verdict.tensors.size(); ++i) {
    const bool usable =
        c.expected().clean[i].error.within(kPlainTolerance);  // else it would refuse right kernels too
    if (usable && !verdict.tensors[i].error.within(kPlainTolerance)) return true;
  }
  return false;
}

/// What refuses the outputs of the last run: the exact result, or the mirror. Empty: nothing.
std::string refusal_of(Case& c, const Verdict& verdict) {
  const std::string kernel = " of " + std::string(c.kernel->name);
  if (const auto tensor = refused(verdict)) return "exact: " + *tensor + kernel;
  auto& [reference, mirror, clean] = c.expected();
  const TensorSet outputs = reference.take_outputs();
  const auto beside = refused(judge_mirror(reference, outputs, mirror, c.direction, c.kernel->arithmetic));
  return beside ? "mirror: " + *beside + kernel : "";
}

/// What the checks see of the active mutant in one case: guards, the exact result, the mirror.
void look_at(Case& c, Sighting& sighting) {
  const std::string kernel(c.kernel->name);
  Reference& reference = c.expected().reference;
  try {
    reference.run(*c.kernel, c.options, c.direction);
    const Verdict verdict = reference.judge(c.direction);
    sighting.by_plain_tolerance = sighting.by_plain_tolerance || plain_tolerance_sees(c, verdict);
    const std::string refusal = refusal_of(c, verdict);
    if (refusal.empty()) return;
    if (sighting.check.empty()) sighting.check = refusal;
    if (sighting.at.contains(kernel)) return;
    const auto where = locate(reference, *c.kernel, c.options, c.direction);
    if (!where) return;
    if (sighting.first_divergence.empty()) sighting.first_divergence = describe(*where, reference.problem());
    sighting.at[kernel] = place_of(*where);
  } catch (const DeviceError& error) {
    if (sighting.check.empty()) sighting.check = error.what();
  }
}

/// @param mutant  0: none
/// @param stop_when_seen  as declared
Sighting look_for(int mutant, std::vector<Case>& cases, bool stop_when_seen) {
  Sighting sighting;
  for (Case& c : cases) {
    c.expected();  // before the mutant is there
    active_mutant = mutant;
    activate_on_device(mutant);
    look_at(c, sighting);
    active_mutant = 0;
    if (cudaDeviceSynchronize() != cudaSuccess) break;  // nothing runs there any more
    activate_on_device(0);
    if (mutant == 0 || !stop_when_seen) continue;
    if (broken_promise(kMutants[static_cast<std::size_t>(mutant - 1)], sighting.check, sighting.at).empty())
      break;
  }
  return sighting;
}

/// The value of "--name=value" among the arguments; empty: none.
std::string argument(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]).starts_with(name + "=")) return argv[i] + name.size() + 1;
  }
  return {};
}
int count_argument(int argc, char** argv, const std::string& name, int otherwise) {
  const std::string value = argument(argc, argv, name);
  return value.empty() ? otherwise : std::atoi(value.c_str());
}
bool has_argument(int argc, char** argv, const char* name) {
  return std::any_of(argv + 1, argv + argc, [&](const char* given) { return std::strcmp(given, name) == 0; });
}

struct Counts {
  int next = 0;  // mutant, from 0
  int tried = 0, kept = 0, by_plain_tolerance = 0;
};

/// A fault leaves the process without a usable device: the rest goes on in a new one.
void continue_if_faulted(int argc, char** argv, const Counts& counts) {
  if (cudaDeviceSynchronize() == cudaSuccess) return;
  std::fflush(stdout);
  std::vector<std::string> words = {
      argv[0], "--from=" + std::to_string(counts.next), "--tried=" + std::to_string(counts.tried),
      "--kept=" + std::to_string(counts.kept), "--by-tolerance=" + std::to_string(counts.by_plain_tolerance)};
  for (int i = 1; i < argc; ++i) words.emplace_back(argv[i]);  // behind, so that the first of a name counts
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());
}

void print_row(const Mutant& mutant, const Sighting& seen, const std::string& broken) {
  std::printf(
      "| %s | %s | %s | %s | %s | %s |\n", mutant.name.c_str(), mutant.what.c_str(), seen.check.c_str(),
      seen.by_plain_tolerance ? "seen" : "missed",
      seen.first_divergence.substr(0, seen.first_divergence.find(": ", seen.first_divergence.find("block")))
          .c_str(),
      broken.empty() ? "yes" : ("**" + broken + "**").c_str());
}

void suggest(const Mutant& mutant, const Sighting& seen) {
  std::fprintf(stderr, "mutant %s\n", mutant.name.c_str());
  for (const auto& [kernel, where] : seen.at)
    std::fprintf(stderr, "at %s %s\n", kernel.c_str(), where.c_str());
  if (seen.at.empty()) std::fprintf(stderr, "by %s\n", seen.check.c_str());
}

}  // namespace
}  // namespace tilescope

int main(int argc, char** argv) {
  using namespace tilescope;
  if (const auto lack = device_lack()) {
    std::printf("skipped: %s\n", lack->c_str());
    return 77;
  }
  const bool suggests = has_argument(argc, argv, "--suggest"),
             stop_when_seen = has_argument(argc, argv, "--stop-when-seen");
  const std::string only = argument(argc, argv, "--only");
  const int every = count_argument(argc, argv, "--every", 1), mutants = static_cast<int>(kMutants.size());
  Counts counts{count_argument(argc, argv, "--from", count_argument(argc, argv, "--first", 0)),
                count_argument(argc, argv, "--tried", 0), count_argument(argc, argv, "--kept", 0),
                count_argument(argc, argv, "--by-tolerance", 0)};
  std::vector<Case> cases = prepare_cases();
  if (argument(argc, argv, "--from").empty()) {
    if (const Sighting control = look_for(0, cases, false); !control.check.empty()) {
      std::printf("no mutant is active, yet: %s\n", control.check.c_str());
      return 1;
    }
    std::printf("| mutant | what goes wrong | seen by | plain 1e-2 | first divergence | as declared |\n");
    std::printf("|---|---|---|---|---|---|\n");
  }
  while (counts.next < mutants) {
    const int number = counts.next;
    counts.next += every;
    const Mutant& mutant = kMutants[static_cast<std::size_t>(number)];
    if (!only.empty() && mutant.name != only) continue;
    ++counts.tried;
    const Sighting seen = look_for(number + 1, cases, stop_when_seen);
    const std::string broken = broken_promise(mutant, seen.check, seen.at);
    counts.kept += broken.empty();
    counts.by_plain_tolerance += seen.by_plain_tolerance;
    print_row(mutant, seen, broken);
    if (suggests) suggest(mutant, seen);
    continue_if_faulted(argc, argv, counts);
  }
  std::printf(
      "\n%d of %d mutants caught and located as declared; a plain tolerance of 1e-2 on the same runs sees "
      "%d.\n",
      counts.kept, counts.tried, counts.by_plain_tolerance);
  return counts.tried > 0 && counts.kept == counts.tried ? 0 : 1;
}
