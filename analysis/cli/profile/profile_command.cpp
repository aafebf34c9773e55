// SPDX-License-Identifier: Apache-2.0
// `tilescope profile`: counters and times of TileScope's kernels, or of every kernel of a command.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <memory>
#include <optional>

#include "analysis/cli/command.hpp"
#include "analysis/cli/commands/explained.hpp"
#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/profile/profile.hpp"
#include "common/nearest_names.hpp"
#include "profiler/calibration/self_test.hpp"
#include "profiler/counters/metric_sets.hpp"
#include "profiler/injection/name_pattern.hpp"
#include "profiler/injection/profiled_command.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope::cli {
namespace {

struct ProfileArguments {
  CommandToMeasure command;
  ProfileKernelOptions kernels;
  GpuOptions gpus;
  TimelineOptions timeline;
  std::string l2 = "cold";
  bool self_test = false;
  bool explain = false;
  NcuArguments ncu;
};

// Chips to ask about a name before the device is known, the commonest first.
constexpr const char* kLikelyChips[] = {"GH100", "GA100", "GB100", "GB202", "AD102"};

[[noreturn]] void refuse_metric(const UnknownMetric& unknown) {
  std::string nearest;
  for (const std::string& name : nearest_names(unknown.name(), unknown.known())) {
    nearest += (nearest.empty() ? "; did you mean " : ", ") + name;
  }
  throw BadInput("--metrics", unknown.name(),
                 "must be names of `tilescope list counters`, or counters with their rollup" +
                     (nearest.empty() ? "" : nearest + "?"));
}

/// Refuses names that no likely chip has. Where libcupti is missing nobody can tell; the command will say so.
void require_known_metrics(const std::string& metrics) {
  std::optional<UnknownMetric> unknown;
  for (const char* chip : kLikelyChips) {
    try {
      choose_metrics(metrics, MetricCatalogue(chip));
      return;
    } catch (const MachineLacks&) {
      return;
    } catch (const UnknownMetric& error) {
      if (!unknown) unknown = error;
    } catch (const BadInput&) {
      continue;  // this libcupti is older than the chip
    }
  }
  if (unknown) refuse_metric(*unknown);
}

int timeline_of_command(const ProfileArguments& arguments, const CommandContext& context) {
  CommandOptions options;
  if (arguments.command.time_limit_s > 0)
    options.time_limit = std::chrono::seconds(arguments.command.time_limit_s);
  int exit_code = 0;
  profile_timeline(
      arguments.timeline, [&] { exit_code = run_command(arguments.command.words, options).exit_code; },
      context);
  return exit_code;
}

/// --launches and --placements count TileScope's own kernels again; nothing else can be launched again from
/// here.
void require_own_kernels(const ProfileArguments& arguments) {
  const ProfileKernelOptions& kernels = arguments.kernels;
  if (kernels.cta_progress &&
      (!kernels.given() || !arguments.command.words.empty() || !arguments.timeline.plot.empty() ||
       kernels.launches_text || kernels.placements_text)) {
    throw BadInput("--cta-progress", "given",
                   "must stand with --kernel, and without --launches, --placements and --timeline");
  }
  kernels.launches();
  kernels.placements();
  for (const auto& [option, text] :
       {std::pair("--launches", kernels.launches_text), std::pair("--placements", kernels.placements_text)}) {
    if (!text) continue;
    if (!arguments.command.words.empty()) {
      throw BadInput(option, *text,
                     "must stand with --kernel, not with a command, each of whose launches is measured once");
    }
    if (!kernels.given() || !arguments.timeline.plot.empty()) {
      throw BadInput(option, *text, "must stand with --kernel, and without --timeline");
    }
  }
}

/// --gpus: the bytes on the links.
int profile_ranks(const ProfileArguments& arguments, const CommandContext& context) {
  DeviceRuns runs;
  runs.problems = {arguments.kernels.problem.problem()};
  runs.directions = arguments.kernels.problem.directions();
  runs.schedules = arguments.gpus.all();
  runs.transport = arguments.gpus.transport();
  arguments.gpus.require_one_process("one process reads the counters of all links");
  runs.kernel = device_kernel(arguments.kernels.kernel);
  return profile_distributed(context, runs);
}

/// --samples: a record's timeline.
int plot_samples(const ProfileArguments& arguments, const CommandContext& context) {
  if (arguments.timeline.plot.empty()) {
    throw BadInput("--samples", arguments.timeline.samples, "must stand with --timeline FILE.svg");
  }
  plot_timeline(arguments.timeline, context);
  return kFine;
}

/// --kernel: TileScope's own.
int profile_own_kernels(ProfileArguments& arguments, L2State l2, const CommandContext& context) {
  if (!arguments.command.words.empty()) {
    throw BadInput("COMMAND", arguments.command.words.front(),
                   "must stand without --kernel and problem options");
  }
  if (arguments.kernels.cta_progress) return profile_progress(arguments.kernels, context);
  if (arguments.timeline.plot.empty()) {
    return profile_kernels(arguments.kernels, arguments.command.request.metrics, l2, context);
  }
  const auto in_turn = kernels_in_turn(arguments.kernels, context);
  if (!in_turn) return kCheckFailed;
  profile_timeline(arguments.timeline, in_turn, context);
  return kFine;
}

/// --explain: what explains the command's kernels by the problem.
Output explained_by(const ProblemOptions& problem, const KernelRecord& record,
                    const CommandContext& context) {
  ExplainInput input;
  input.problem = problem.problem();
  input.directions =
      problem.pass_given() ? problem.directions() : std::vector{Direction::forward, Direction::backward};
  return explained(explain_record(context.argv, "the command", record, {}, std::move(input)), context.format);
}

void require_explainable(ProfileArguments& arguments) {
  if (arguments.command.words.empty() || arguments.kernels.kernel.given() ||
      arguments.kernels.sweep.given() || !arguments.kernels.problem.shape_given()) {
    throw BadInput(
        "--explain", "given",
        "must stand with a command and with the problem that it computes, as in: tilescope profile "
        "--explain --heads 16 --seqlen 4k --head-dim 128 --dtype fp16 -- python3 script.py");
  }
  if (arguments.command.request.metrics == ProfileRequest{}.metrics)
    arguments.command.request.metrics = "traffic,causes";
}

/// How to go on to what the kernels must move, and why they move more.
std::string way_to_answer(const ProfileArguments& arguments, const CommandContext& context) {
  constexpr const char* kProblem = "--batch B --heads H --seqlen N --head-dim D --dtype fp16";
  const bool kept = !context.json.empty() && context.json != "-";
  const std::string command = kept ? fmt::format("tilescope explain {} {}", context.json, kProblem)
                                   : fmt::format("tilescope profile --explain {} -- {}", kProblem,
                                                 fmt::join(arguments.command.words, " "));
  return "What attention kernels must move, and why they move more: " + command + "\n";
}

/// Every kernel that the command launches. @return the command's exit code
int profile_command(const ProfileArguments& arguments, const CommandContext& context) {
  require_countable(arguments.command);
  const KernelRecord record = measure(arguments.command, context);
  if (!record.kernels.empty()) context.print(kernel_table(record));
  const bool nothing_measured = record.kernels.empty() && *record.exit_code == 0;
  KernelRecord told = record;
  if (nothing_measured && !told.messages.empty()) told.messages.erase(told.messages.begin());  // told below
  context.print(conclusion(told));
  context.write_json(to_json_text(record));
  if (arguments.explain && !record.kernels.empty()) {
    context.print(Output("\n") + explained_by(arguments.kernels.problem, record, context));
  } else if (!record.kernels.empty()) {
    context.print(way_to_answer(arguments, context));
  }
  if (nothing_measured) {
    fmt::print(stderr, "tilescope: no kernel was measured{}\n",
               record.messages.empty() ? "" : ": " + record.messages.front());
    return kCheckFailed;
  }
  return static_cast<int>(*record.exit_code);
}

int run_profile(ProfileArguments& arguments, const CommandContext& context) {
  arguments.gpus.require_complete();
  if (arguments.gpus.given()) return profile_ranks(arguments, context);
  require_own_kernels(arguments);
  if (arguments.self_test) return report_self_test(run_self_test(), context);
  if (arguments.ncu.given())
    return compare_with_ncu(arguments.ncu, arguments.command.request.kernel_filter, context);
  if (!arguments.timeline.samples.empty()) return plot_samples(arguments, context);
  const L2State l2 = parse_l2_state(arguments.l2);
  if (!arguments.kernels.given() && arguments.command.words.empty()) {
    throw BadInput("COMMAND", "(none)",
                   "must follow --, as in: tilescope profile -- python3 script.py; or --kernel must name a "
                   "kernel of TileScope");
  }
  if (arguments.explain) require_explainable(arguments);
  require_known_metrics(arguments.command.request.metrics);
  if (arguments.kernels.given() && !arguments.explain) return profile_own_kernels(arguments, l2, context);
  if (!arguments.timeline.plot.empty()) return timeline_of_command(arguments, context);
  arguments.command.request.l2 = l2;
  return profile_command(arguments, context);
}

/// What is counted of which launches.
void add_choice_options(ProfileArguments& arguments, CLI::App& command) {
  add_value(command, "--l2", arguments.l2, "cold|warm",
            "what L2 holds before each kernel: nothing, or its lines (cold)");
  add_value(command, "--metrics", arguments.command.request.metrics, "NAMES",
            "sets, metrics and counters, with commas (list counters)");
  add_value(command, "--kernel-filter", arguments.command.request.kernel_filter, "REGEX",
            "measure only kernels whose name contains a match");
  add_value(command, "--nvtx", arguments.command.request.nvtx_filter, "REGEX",
            "measure kernels launched inside an NVTX range of that name");
  add_integer(command, "--skip", arguments.command.request.skip, 0, kAnyCount,
              "matching launches to let pass first; default 0");
  add_integer(command, "--count", arguments.command.request.count, 1, kAnyCount,
              "matching launches to measure; default all");
  add_value(command, "--replay", arguments.command.replay, "kernel|application",
            "what to repeat for counters that need several passes (kernel)");
  command.add_flag("--explain", arguments.explain, "then explain the kernels, by the problem given here");
  command.add_flag("--time", arguments.command.time,
                   "run the command a second time, without counters, for times");
}

void add_timeline_options(ProfileArguments& arguments, CLI::App& command) {
  add_value(command, "--timeline", arguments.timeline.plot, "FILE.svg",
            "instead of counting kernels: plot device 0's DRAM and tensor use");
  add_value(command, "--interval", arguments.timeline.interval_us, "N",
            "microseconds of a --timeline sample; default 100");
  add_value(command, "--samples", arguments.timeline.samples, "RECORD.json",
            "plot the --timeline of this record; nothing is run");
}

/// What is done instead of counting a command's kernels.
void add_check_options(ProfileArguments& arguments, CLI::App& command) {
  command.add_flag("--self-test", arguments.self_test, "instead of a command: kernels that move known bytes");
  add_value(command, "--compare", arguments.ncu.records, "RECORD.json",
            "no command: a record, held against --ncu; again for more runs")
      ->allow_extra_args(false);
  add_value(command, "--ncu", arguments.ncu.csv, "FILE.csv",
            "the same command under ncu --csv --page raw --print-units base; again for more runs")
      ->allow_extra_args(false);
}

void add_command_options(ProfileArguments& arguments, CLI::App& command) {
  command.add_flag(
      "--communication", arguments.command.request.communication,
      "also measure kernels that wait for other devices, as NCCL's do; each process must use one device");
  add_integer(command, "--timeout,--time-limit", arguments.command.time_limit_s, 0, kMostTimeLimit_s,
              fmt::format("end the command and its children after N seconds ({}; 0: never)", kTimeLimit_s));
}

}  // namespace

void add_profile_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<ProfileArguments>();
  CLI::App& command =
      add_command(app, context, "profile", "counters and times of TileScope's kernels, or of a command's",
                  [arguments, &context] { return run_profile(*arguments, context); });
  add_raw_option(command, context);
  arguments->kernels.add_to(command);
  refuse_v_transposed(command);
  add_choice_options(*arguments, command);
  add_timeline_options(*arguments, command);
  add_check_options(*arguments, command);
  add_command_options(*arguments, command);
  arguments->gpus.add_to(
      command,
      {"--tile", "--backward", "--order", "--scan", "--fp8-sums", "--variant", "--diagonal-slices",
       "--splits", "--pack-gqa", "--query-splits", "--sweep", "--launches", "--placements", "--cta-progress",
       "--l2", "--metrics", "--timeline", "--self-test"},
      true);
  add_value(command, "command", arguments->command.words, "-- COMMAND", "what to run, after --");
  add_format_option(command, context);
  show_examples(
      command,
      {{"profile --metrics traffic --json k.json -- python3 script.py", "bytes of every kernel of a script"},
       {"profile --kernel gpu:flash2-mma --seqlen 4k --dtype fp16",
        "a kernel of TileScope, beside its formula"},
       {"profile --gpus 2 --schedule zigzag --preset llama3-8b",
        "bytes on the links of two GPUs, beside the closed form"}},
      "With a command, exits as the command does, or with 1 where no kernel was measured. With --json - its "
      "standard output goes to standard error.");
}

}  // namespace tilescope::cli
