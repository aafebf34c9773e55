// SPDX-License-Identifier: Apache-2.0
// FlashAttention's Figure 2 beside what our records hold.
#include "analysis/report/sections/checks/figure2.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "analysis/model/validation/paper_counts.hpp"
#include "analysis/model/validation/paper_values.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sections/speed/roofline_figures.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

constexpr double kGiga = 1e9;
constexpr std::int64_t kPaperElementBytes = 2;  // fp16 throughout, sums included
constexpr std::int64_t kLiteralBlocks = 3;      // Tc of Algorithm 1 with 192 KB of SRAM: Bc = 384

std::string gigabytes(double bytes) { return fmt::format("{:.2f}", bytes / kGiga); }

/// GPT-2 medium as the paper's Figure 2 states it.
bool is_figure2_problem(const AttentionProblem& p) {
  return p.batch == 64 && p.heads == 16 && p.heads_kv == 16 && p.seqlen_q == 1024 && p.seqlen_k == 1024 &&
         p.head_dim == 64 && p.dtype == ElementType::fp16 && !p.masked();
}

/// The run of an algorithm at a kv block, or null. 0 = any block.
const RunSummary* find_run(const std::vector<const RunSummary*>& runs, Algorithm algorithm,
                           Direction direction, int block_n) {
  const auto found = std::ranges::find_if(runs, [&](const RunSummary* run) {
    return run->algorithm == algorithm && run->direction == direction && run->closed_form &&
           (block_n == 0 || run->tile.block_n == block_n);
  });
  return found == runs.end() ? nullptr : *found;
}

/// Both directions of one kernel.
struct BothPasses {
  const RunSummary* forward = nullptr;
  const RunSummary* backward = nullptr;

  explicit operator bool() const { return forward && backward; }
  double closed_form_bytes() const {
    return static_cast<double>(forward->closed_form->total() + backward->closed_form->total());
  }
  std::string simulated_gigabytes() const {
    if (!forward->simulated_dram || !backward->simulated_dram) return "-";
    return gigabytes(
        static_cast<double>(forward->simulated_dram->total() + backward->simulated_dram->total()));
  }
  /// FLOP of the matrix products that the passes execute, over the pairs that count.
  double gflop() const {
    std::int64_t flops = 0;
    for (const RunSummary* run : {forward, backward}) {
      for (const PassRecord* pass : run->passes) flops += pass->flops;
    }
    return static_cast<double>(flops) / kGiga;
  }
};

BothPasses find_both(const std::vector<const RunSummary*>& runs, Algorithm algorithm) {
  const RunSummary* backward = find_run(runs, algorithm, Direction::backward, 0);
  if (!backward) return {};
  return {find_run(runs, algorithm, Direction::forward, backward->tile.block_n), backward};
}

/// Bytes of a printed algorithm at Figure 2's shape, `counts` added up.
double paper_bytes(const AttentionProblem& problem, std::int64_t kv_blocks,
                   std::initializer_list<const char*> counts) {
  const PaperShape shape{problem.seqlen_q, problem.head_dim, 1, kv_blocks};
  std::int64_t elements = 0;
  for (const char* name : counts) elements += find_paper_count(name).count(shape).total();
  return static_cast<double>(elements * problem.batch * problem.heads * kPaperElementBytes);
}

/// Bytes of one pass over an N x N matrix of every head.
double square_bytes(const AttentionProblem& p) {
  return static_cast<double>(p.batch * p.heads * p.seqlen_q * p.seqlen_k * kPaperElementBytes);
}

/// Algorithm 1 without initialisation, first reads and row statistics: (3 Tc + 1) N d elements a head.
double elided_forward_bytes(const AttentionProblem& p, int block_n) {
  const std::int64_t kv_blocks = ceil_div(static_cast<int>(p.seqlen_k), block_n);
  return static_cast<double>((3 * kv_blocks + 1) * p.seqlen_q * p.head_dim * p.batch * p.heads *
                             kPaperElementBytes);
}

Table left_panel(const BothPasses& standard, const BothPasses& flash, bool measured) {
  const AttentionProblem& problem = standard.forward->problem();
  const auto [second, first] = std::pair(kPaperFigure2Left[0], kPaperFigure2Left[1]);
  Table table{"Left panel: forward and backward of GPT-2 medium (B64 H16 N1024 D64), standard / flash.",
              {{"quantity"}, {"paper", true}, {"ours", true}, {"verdict"}},
              {}};
  const auto pair_text = [](const std::string& a, const std::string& b) { return a + " / " + b; };
  const double product_gflop = 2.0 *
                               static_cast<double>(problem.batch * problem.heads * problem.seqlen_q *
                                                   problem.seqlen_k * problem.head_dim) /
                               kGiga;
  table.rows.push_back(
      {"GFLOP", fmt::format("{} / {}", second.standard_gflop, second.flash_gflop),
       fmt::format("{:.1f} / {:.1f}", standard.gflop(), flash.gflop()),
       fmt::format(
           "**Does not reproduce.** One N x N x d product over all heads is {:.1f} GFLOP; {:.0f} and {:.0f} "
           "are executed. The paper's values are {:.1f}x and {:.1f}x smaller.",
           product_gflop, standard.gflop() / product_gflop, flash.gflop() / product_gflop,
           standard.gflop() / second.standard_gflop, flash.gflop() / second.flash_gflop)});
  const std::string printed =
      fmt::format("{} / {} ({}: {} / {})", second.standard_gigabytes, second.flash_gigabytes, first.version,
                  first.standard_gigabytes, first.flash_gigabytes);
  const double literal_standard = paper_bytes(problem, 1, {"standard-forward", "standard-backward"});
  table.rows.push_back(
      {"GB, algorithms as printed", printed,
       pair_text(gigabytes(literal_standard),
                 gigabytes(paper_bytes(problem, kLiteralBlocks, {"flash1-forward", "flash1-backward"}))),
       "**Standard does not reproduce** from Algorithms 0 and 3 alone. Flash, Algorithms 1 and 4 literally "
       "with Tc = 3 (192 KB of SRAM, Bc = 384), is near."});
  constexpr double kExtraPasses = 7;  // mask 2, dropout 2.5 forward (1-byte mask), 2.5 backward
  constexpr int kLikelyBlock = 256;   // what the first release used for d = 64 on the A100
  const double elided = elided_forward_bytes(problem, kLikelyBlock) +
                        paper_bytes(problem, problem.seqlen_k / kLikelyBlock, {"flash1-backward-elided"});
  table.rows.push_back(
      {"GB, reconstructed", printed,
       pair_text(gigabytes(literal_standard + kExtraPasses * square_bytes(problem)), gigabytes(elided)),
       "**Plausible only.** Standard: 7 more passes over N x N (mask 2, dropout 2.5 each way) make up "
       "version 2, and nothing found makes up version 1. Flash: Tc = 4 (Bc = 256), without O in the "
       "backward pass, initialisation and row statistics. The paper states neither its blocks nor how it "
       "counted."});
  table.rows.push_back(
      {fmt::format("GB at SM<->L2, our programs, Bc = {}", flash.forward->tile.block_n), "-",
       pair_text(gigabytes(standard.closed_form_bytes()), gigabytes(flash.closed_form_bytes())),
       "What the executed passes move: O, dQ summed in fp32, and a last pass that rounds them."});
  table.rows.push_back({fmt::format("GB at DRAM, simulated, {}", standard.forward->machine_model), "-",
                        pair_text(standard.simulated_gigabytes(), flash.simulated_gigabytes()),
                        "The heads of a wave together exceed the L2, so that little is saved."});
  table.rows.push_back(
      {"ms",
       fmt::format("{} / {} ({}: {} / {})", second.standard_milliseconds, second.flash_milliseconds,
                   first.version, first.standard_milliseconds, first.flash_milliseconds),
       "-", measured ? "The table below has those of another device." : "No times were measured here."});
  return table;
}

/// The record that has most points of the middle panel: other records'
/// tiles are choices of other studies.
std::vector<const RunSummary*> of_one_record(const std::vector<const RunSummary*>& runs) {
  const auto points = [](const std::vector<const RunSummary*>& of_record) {
    return std::ranges::count(of_record, Algorithm::flash1, &RunSummary::algorithm);
  };
  const auto records = group_by_record(runs);
  const auto most = std::ranges::max_element(records, {}, points);
  return most == records.end() ? runs : *most;
}

std::optional<Table> middle_panel(const std::vector<const RunSummary*>& runs) {
  Table table{"Middle panel: HBM accesses of the forward pass against the block size Bc, in GB.",
              {{"Bc", true},
               {"paper, read off the drawing", true},
               {"(3 Tc + 1) N d", true},
               {"our program, SM<->L2", true},
               {"our program, DRAM simulated", true}},
              {}};
  for (const PaperFigure2Middle& point : kPaperFigure2Middle) {
    const RunSummary* run = find_run(runs, Algorithm::flash1, Direction::forward, point.block_n);
    if (!run) continue;
    table.rows.push_back(
        {std::to_string(point.block_n), fmt::format("{}", point.gigabytes),
         gigabytes(elided_forward_bytes(run->problem(), point.block_n)),
         gigabytes(static_cast<double>(run->closed_form->total())),
         run->simulated_dram ? gigabytes(static_cast<double>(run->simulated_dram->total())) : "-"});
  }
  if (table.rows.size() < 2) return std::nullopt;  // one point is no curve
  return table;
}

using KernelPasses = std::vector<std::pair<std::string, BothPasses>>;

/// Kernels with both directions' counters and clocks.
KernelPasses measured_kernels(const std::vector<const RunSummary*>& runs) {
  KernelPasses kernels;
  for (const RunSummary* run : runs) {
    if (!run->measured_dram || !run->measured_sm_l2 || !run->median_seconds) continue;
    auto found =
        std::ranges::find_if(kernels, [run](const auto& one) { return one.first == run->run->kernel; });
    if (found == kernels.end()) found = kernels.insert(found, {run->run->kernel, {}});
    (run->direction == Direction::forward ? found->second.forward : found->second.backward) = run;
  }
  std::erase_if(kernels, [](const auto& one) { return !one.second; });
  return kernels;
}

double seconds_of(const BothPasses& both) {
  return *both.forward->median_seconds + *both.backward->median_seconds;
}

const char* unit_of(const BothPasses& both) {
  const std::optional<bool>& cuda_cores = both.forward->on_cuda_cores;
  if (!cuda_cores) return "-";
  return *cuda_cores ? "CUDA cores" : "tensor cores";
}

/// What counters and clocks say of both directions on a device, a row a kernel.
std::optional<Table> measured_table(const std::vector<const RunSummary*>& runs) {
  const KernelPasses kernels = measured_kernels(runs);
  if (kernels.empty()) return std::nullopt;
  Table table{
      fmt::format("Measured on {}: forward and backward of GPT-2 medium, fp16. Times of kernels whose "
                  "products run on CUDA cores do not compare with those on tensor cores: not the order of "
                  "tiles alone differs.",
                  kernels.front().second.forward->record->machine.name.value_or("a device")),
      {{"kernel"},
       {"GB at SM<->L2", true},
       {"fewer than the first", true},
       {"GB at DRAM", true},
       {"fewer than the first", true},
       {"products on"},
       {"ms", true}},
      {}};
  double first[2] = {};
  for (const auto& [name, both] : kernels) {
    const auto& [forward, backward] = both;
    const double values[2] = {
        static_cast<double>(forward->measured_sm_l2->total() + backward->measured_sm_l2->total()),
        static_cast<double>(forward->measured_dram->total() + backward->measured_dram->total())};
    std::vector<std::string> row{name};
    for (int i = 0; i < 2; ++i) {
      if (first[i] == 0) first[i] = values[i];
      row.push_back(gigabytes(values[i]));
      row.push_back(format_ratio(first[i] / values[i]));
    }
    row.push_back(unit_of(both));
    row.push_back(fmt::format("{:.2f}", 1e3 * seconds_of(both)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Runs of the figure's problem, of the record that has most of its middle panel, and measured ones.
struct Figure2Runs {
  std::vector<const RunSummary*> counted, measured;
};
Figure2Runs figure2_runs(const std::vector<RunSummary>& runs) {
  Figure2Runs found;
  for (const RunSummary& run : runs) {
    if (is_figure2_problem(run.problem()))
      (run.measured_dram ? found.measured : found.counted).push_back(&run);
  }
  found.counted = of_one_record(found.counted);
  return found;
}

double dram_of(const BothPasses& both) {
  return static_cast<double>(both.forward->measured_dram->total() + both.backward->measured_dram->total());
}

}  // namespace

std::optional<Figure2Passes> figure2_passes(const std::vector<RunSummary>& runs) {
  const std::vector<const RunSummary*> counted = figure2_runs(runs).counted;
  const BothPasses standard = find_both(counted, Algorithm::standard);
  const BothPasses flash = find_both(counted, Algorithm::flash1);
  if (!standard || !flash) return std::nullopt;
  const AttentionProblem& problem = standard.forward->problem();
  return Figure2Passes{standard.gflop(), flash.gflop(),
                       paper_bytes(problem, 1, {"standard-forward", "standard-backward"}) / kGiga,
                       paper_bytes(problem, kLiteralBlocks, {"flash1-forward", "flash1-backward"}) / kGiga};
}

std::vector<Figure2Block> figure2_blocks(const std::vector<RunSummary>& runs) {
  std::vector<Figure2Block> blocks;
  const std::vector<const RunSummary*> counted = figure2_runs(runs).counted;
  for (const PaperFigure2Middle& point : kPaperFigure2Middle) {
    const RunSummary* run = find_run(counted, Algorithm::flash1, Direction::forward, point.block_n);
    if (!run) continue;
    blocks.push_back(
        {point.block_n, point.gigabytes, elided_forward_bytes(run->problem(), point.block_n) / kGiga});
  }
  return blocks;
}

std::optional<Figure2OnDevice> figure2_on_device(const std::vector<RunSummary>& runs) {
  const KernelPasses kernels = measured_kernels(figure2_runs(runs).measured);
  if (kernels.size() < 3) return std::nullopt;
  const auto& [baseline, slow] = kernels.front();
  const auto& [last, fast] = kernels.back();
  Figure2OnDevice found;
  found.device = slow.forward->record->machine.name.value_or("an unknown device");
  found.baseline = baseline;
  found.flash = kernels[1].first;
  found.last = last;
  found.flash_dram_ratio = dram_of(slow) / dram_of(kernels[1].second);
  found.dram_ratio = dram_of(slow) / dram_of(fast);
  found.time_ratio = seconds_of(slow) / seconds_of(fast);
  const std::optional<bool> slow_cuda_cores = slow.forward->on_cuda_cores;
  found.one_unit = slow_cuda_cores && slow_cuda_cores == fast.forward->on_cuda_cores;
  found.units = found.one_unit && !*slow_cuda_cores
                    ? "tensor cores on both sides"
                    : fmt::format("{} for the baseline, {} for the last", unit_of(slow), unit_of(fast));
  return found;
}

std::optional<Section> paper_figure2_section(const std::vector<RunSummary>& runs) {
  const auto [members, measured] = figure2_runs(runs);
  const std::optional<Table> on_a_device = measured_table(measured);
  Section section{"paper-figure2", "FlashAttention's Figure 2, recounted", {}};
  const BothPasses standard = find_both(members, Algorithm::standard);
  const BothPasses flash = find_both(members, Algorithm::flash1);
  if (standard && flash) section.blocks.push_back(left_panel(standard, flash, on_a_device.has_value()));
  if (std::optional<Table> table = middle_panel(members)) {
    section.blocks.push_back(std::move(*table));
    section.blocks.push_back(
        Paragraph{"**The middle panel reproduces** to the two digits of the read-off, by a count of 2-byte "
                  "elements in which O is read and written at every step but the first. The panel is "
                  "therefore more likely a count than a DRAM counter: a kernel that keeps O in fp32 moves "
                  "more, and the A100 has an L2 of 40 MB in between."});
  }
  std::vector<std::string> commands;
  for (const auto* group : {&members, &measured}) {
    if (!group->empty()) add_command(commands, *group->front()->record);
  }
  if (on_a_device) section.blocks.push_back(*on_a_device);
  if (section.blocks.empty()) return std::nullopt;
  section.blocks.insert(
      section.blocks.begin(),
      Paragraph{"The figure of the first FlashAttention paper (arXiv:2205.14135) whose numbers are most "
                "quoted, beside counts by the paper's own algorithms and by the programs that TileScope "
                "executes."});
  section.blocks.push_back(CommandLines{reproduction(commands)});
  return section;
}

}  // namespace tilescope
