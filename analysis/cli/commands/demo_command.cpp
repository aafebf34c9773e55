// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <ranges>

#include "analysis/cli/command.hpp"
#include "analysis/cli/commands/next_steps.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/simulate/simulate.hpp"
#include "analysis/records/files/text_file.hpp"
#include "common/number_format.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope::cli {

std::vector<NextStep> next_steps(const std::string& gpu_kernel, bool has_pytorch) {
  const bool has_gpu = !gpu_kernel.empty();
  std::vector<NextStep> steps;
  if (has_gpu && has_pytorch) {
    steps.push_back({"profile --metrics traffic --json k.json -- python3 examples/pytorch_attention.py",
                     "bytes of PyTorch's own kernels; then explain"});
  }
  if (has_gpu) {
    steps.push_back(
        {"profile --kernel " + gpu_kernel + " --preset llama3-8b", "counters beside the formula"});
    steps.push_back({"bench --kernel " + gpu_kernel + " --preset llama3-8b" + (has_pytorch ? " --peers" : ""),
                     has_pytorch ? "times, beside PyTorch's and Triton's" : "times"});
  } else {
    steps.push_back(
        {"simulate --model llama3-70b --tp 8 --machine a100-80gb,h200", "a model on GPUs that are not here"});
    steps.push_back(
        {"compare cpu:flash1 cpu:flash2 --preset gpt2-medium", "why two kernels move different bytes"});
  }
  if (steps.size() < 3)
    steps.push_back({"simulate --preset llama3-8b --tune-bytes", "which tiles and orders move least"});
  return steps;
}

bool pytorch_is_here() {
  return std::system(
             "python3 -c 'import importlib.util as i, sys; sys.exit(i.find_spec(\"torch\") is None)' "
             ">/dev/null 2>&1") == 0;
}

namespace {

using Words = std::vector<std::string>;

/// Runs commands one after the other and keeps the paths of their records.
class Tour {
 public:
  Tour(const CommandContext& context, CommandRunner run, std::string folder)
      : context_(context), run_(run), folder_(std::move(folder)) {}

  /// Runs `tilescope WORDS...` with its record in NAME.json; its own output is left out.
  RunRecord record(const std::string& name, Words words) {
    const std::string path = folder_ + "/data/" + name + ".json";
    context_.print(fmt::format("$ ./tilescope {}\n", fmt::join(words, " ")));
    words.insert(words.begin(), "tilescope");
    words.insert(words.end(), {"--quiet", "--json", path});
    worst_exit_code_ = std::max(worst_exit_code_, run_(words));
    records_.push_back(path);
    return read_run_record(path);
  }
  void report() {
    Words words = {"tilescope", "report"};
    words.insert(words.end(), records_.begin(), records_.end());
    words.insert(words.end(), {"--out", folder_, "--quiet"});
    context_.print(fmt::format("$ ./tilescope report {0}/data/*.json --out {0}\n", folder_));
    worst_exit_code_ = std::max(worst_exit_code_, run_(words));
  }

  int worst_exit_code() const { return worst_exit_code_; }
  const Words& records() const { return records_; }

 private:
  const CommandContext& context_;
  CommandRunner run_;
  std::string folder_;
  Words records_;
  int worst_exit_code_ = kFine;
};

std::string verify_summary(const RunRecord& record, int exit_code) {
  return fmt::format("  {} runs against exact fp64 attention: {}\n\n", record.runs.size(),
                     exit_code == kFine ? "every output within its bound" : "NOT ALL WITHIN THEIR BOUND");
}

/// The table that the command itself would print.
Output traffic_table(const RunRecord& record, const std::string& machine_name) {
  const Machine machine = load_machine(machine_name);
  std::vector<SimulateJob> jobs;
  for (const RunEntry& run : record.runs)
    jobs.push_back({.kernel = &find_kernel(run.kernel), .problem = run.problem, .machine = &machine});
  return comparison_table(record.runs, jobs) + "\n";
}

/// `--kernel NAME` of each.
Words kernel_options(const std::vector<std::string>& names) {
  Words words;
  for (const std::string& name : names) words.insert(words.end(), {"--kernel", name});
  return words;
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The two highest rungs of the ladder that run here, the higher one first.
std::vector<std::string> highest_rungs() {
  std::vector<std::string> names;
  for (const GpuKernel& rung : gpu_ladder() | std::views::reverse) {
    if (names.size() < 2 && is_runnable(rung.row)) names.emplace_back(rung.row.name);
  }
  return names;
}

/// A small sweep over the CPU's kernels, and where there is a device some rows of a long problem on its own:
/// a sweep over those takes minutes.
void verify(Tour& tour, const CommandContext& context, const Words& on_cpu, const Words& on_device) {
  const Words quick = {"verify", "--quick"};
  context.print(verify_summary(tour.record("verify", on_device.empty() ? quick : joined(quick, on_cpu)),
                               tour.worst_exit_code()));
  if (on_device.empty()) return;
  const Words rows = {"verify", "--rows",  "64",   "--heads",    "4",   "--seqlen",
                      "8192",   "--dtype", "fp16", "--head-dim", "128", "--causal"};
  context.print(verify_summary(tour.record("verify-rows", joined(rows, on_device)), tour.worst_exit_code()));
}

/// Model and counters side by side, where there is a device that may be counted on.
void count(Tour& tour, const CommandContext& context, const Words& problem) {
  context.print("Does the device say the same?\n\n");
  try {
    const RunRecord measured = tour.record("measured", joined({"profile"}, problem));
    for (const RunEntry& run : measured.runs) {
      for (const PassRecord& pass : run.passes) {
        if (!pass.measured || !pass.measured->sm_l2_read_bytes || !pass.closed_form) continue;
        context.print(fmt::format("  {} {}: {} read by the SMs, by formula {}\n", run.kernel, pass.name,
                                  format_bytes(static_cast<double>(*pass.measured->sm_l2_read_bytes)),
                                  format_bytes(static_cast<double>(pass.closed_form->sm_l2_read_bytes))));
      }
    }
  } catch (const MachineLacks& lack) {
    context.print(fmt::format("  not measured: {}\n", lack.what()));
  }
  context.print("\n");
}

void time(Tour& tour, const CommandContext& context, const Words& problem) {
  context.print("How fast are they?\n\n");
  for (const RunEntry& run : tour.record("timed", joined({"bench"}, problem)).runs) {
    for (const PassRecord& pass : run.passes) {
      if (!pass.time) continue;
      context.print(fmt::format("  {} {}: {:.0f} TFLOP/s\n", run.kernel, to_string(pass.direction),
                                static_cast<double>(pass.flops) / pass.time->median_s / 1e12));
    }
  }
  context.print("\n");
}

/// Lengths and block sizes to draw curves through, and the first paper's own experiment.
void sweep(Tour& tour, const Words& kernels) {
  for (const char* length : {"512", "1024", "2048", "4096", "8192"}) {
    const Words words = {"simulate", "--heads", "16",     "--seqlen", length,
                         "--dtype",  "fp16",    "--pass", "fwd+bwd"};
    tour.record(fmt::format("seqlen-{}", length), joined(words, kernels));
  }
  // `study block-size` has 16 x 16 too, which takes longer than the others together.
  const Words blocks = {
      "simulate", "--preset", "fa2-16k", "--pass", "fwd+bwd", "--sweep", "tile=32x32,64x64,128x128,256x256"};
  tour.record("block-size", joined(blocks, kernels));
  tour.record("paper-figure2", {"study", "paper-figure2"});
}

int demo(const std::string& folder, const CommandContext& context, CommandRunner run) {
  const CreatedFolders created = require_writable_folder("--out", folder + "/data");
  const auto start = std::chrono::steady_clock::now();
  const Words kernels = kernel_options({"cpu:standard", "cpu:flash1", "cpu:flash2"});
  const std::vector<std::string> rungs = highest_rungs();
  Tour tour(context, run, folder);

  context.print("Are the kernels right?\n\n");
  verify(tour, context, kernels, kernel_options(rungs));

  context.print("How many bytes do they move, and how many must they?\n\n");
  for (const auto& [preset, machine] : {std::pair("gpt2-medium", "a100-40gb"), {"llama3-8b", "h200"}}) {
    const Words words = {"simulate", "--preset", preset,    "--machine",
                         machine,    "--pass",   "fwd+bwd", "--curve"};
    context.print(traffic_table(tour.record(preset, joined(words, kernels)), machine));
  }
  if (!rungs.empty()) {
    const Words problem = joined({"--preset", "llama3-8b", "--pass", "fwd+bwd"}, kernel_options(rungs));
    count(tour, context, problem);
    time(tour, context, problem);
  }

  context.print("How does that change with the length and the block size?\n\n");
  sweep(tour, kernels);
  context.print("\n");
  tour.report();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  context.print(fmt::format("\nDone in {:.1f} s. Open {}/report.html in a browser. To try next:\n\n",
                            elapsed.count(), folder));
  for (const NextStep& step : next_steps(rungs.empty() ? "" : rungs.front(), pytorch_is_here())) {
    context.print(fmt::format("  ./tilescope {}\n      {}\n", step.command, step.what));
  }
  context.write_json(Json{{"records", tour.records()}, {"report", folder + "/report.html"}}.dump(2) + "\n");
  return tour.worst_exit_code();
}

}  // namespace

void add_demo_command(CLI::App& app, CommandContext& context, CommandRunner run) {
  const auto folder = std::make_shared<std::string>("report");
  CLI::App& command =
      add_command(app, context, "demo", "a first look: verify, simulate, and a report to open",
                  [folder, &context, run] { return demo(*folder, context, run); });
  add_value(command, "--out", *folder, "DIR", "folder for the records and the report; default report")
      ->capture_default_str();
  add_format_option(command, context);
  show_examples(command, {{"demo", "everything, into the folder report/"},
                          {"demo --out /tmp/look", "the same, elsewhere"}});
}

}  // namespace tilescope::cli
