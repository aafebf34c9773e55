// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/profile/profile.hpp"
#include "analysis/model/counts/measured_bytes.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/records/run_record.hpp"
#include "gpu/launch/pass_runner.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "profiler/records/launch_rounds.hpp"
#include "profiler/timing/nvtx_range.hpp"
#include "profiler/work_profiler.hpp"

namespace tilescope::cli {
namespace {

/// @throws BadInput unless the kernel takes the job's problem in that direction, with passes that can be
/// measured one by one
void require_measurable(const Job& job, Direction direction) {
  require_supported(job.kernel->row, job.problem, direction, job.options);
  if (direction == Direction::backward && job.options.backward == BackwardOrder::single_launch) {
    throw BadInput("backward", "single-launch",
                   "launches two passes at once, and passes are measured one by one; bench times it");
  }
}

}  // namespace

Plan plan_jobs(const ProfileKernelOptions& arguments, const Machine& machine) {
  Plan plan{.jobs = {}, .refusals = Refusals(arguments.sweep.given())};
  std::vector<const GpuKernel*> kernels;
  for (const Kernel* kernel : arguments.kernel.kernels({})) kernels.push_back(&find_gpu_kernel(kernel->name));
  if (kernels.empty()) {
    throw BadInput("--kernel", "(none)", "must name a GPU kernel, or a command must follow --");
  }
  const std::vector<Direction> directions = arguments.problem.directions();
  for (const SweepPoint& point : arguments.sweep.points(arguments.problem.problem())) {
    if (point.refusal) {
      plan.refusals.add("", "", point.refusal, kernels.size() * directions.size());
      continue;
    }
    for (const GpuKernel* kernel : kernels) {
      Job job{kernel, point.problem, {}, {}, {}};
      if (!arguments.sweep.sets("dtype")) {
        job.problem = arguments.problem.in_type_of({&kernel->row}, point.problem);
      }
      for (const Direction direction : directions) {
        const auto attempt = [&] {
          if (job.directions.empty())
            job.options = point.apply_to(arguments.kernel.tuned_options(kernel->row, job.problem));
          require_measurable(job, direction);
        };
        if (plan.refusals.allow(kernel_and_direction(kernel->row.name, direction), describe(job.problem),
                                attempt))
          job.directions.push_back(direction);
      }
      if (job.directions.empty()) continue;
      job.passes = plan_passes(kernel->row, job.problem, job.directions, job.options, machine);
      plan.jobs.push_back(std::move(job));
    }
  }
  if (plan.jobs.empty()) plan.refusals.throw_first();
  return plan;
}

std::vector<RowsJob> rows_jobs(const Plan& plan, const Machine& machine) {
  std::vector<RowsJob> jobs;
  for (const Job& job : plan.jobs) {
    for (const Direction direction : job.directions) {
      jobs.push_back({&job.kernel->row, job.problem, direction,
                      options_on(machine, job.kernel->row, job.problem, direction, job.options)});
    }
  }
  return jobs;
}

namespace {

constexpr int kMostLaunches = 100;  // to count, or placements: medians settle long before

/// Launches of a pass that counters are taken from, in one memory, or one in each of some placements.
struct Counted {
  int launches = 1;
  int placements = 0;  // of pages at random; 0: contiguous
  bool timed = true;

  PagePlacement pages() const { return placements > 0 ? PagePlacement::random : PagePlacement::contiguous; }
};

CounterValue counter_value(double value) {
  constexpr double kExactIntegers = 9007199254740992.0;  // 2^53
  if (std::floor(value) == value && std::abs(value) <= kExactIntegers)
    return static_cast<std::int64_t>(value);
  return value;
}

void add_measurement(PassRecord& pass, const WorkMeasurement& work, bool timed) {
  const KernelMeasurement& kernel = work.kernel;
  pass.measured = measured_bytes(work.counted);
  for (const auto& [name, value] : median_of_launches(work.counted).counters) {
    pass.counters[name] = counter_value(value);
  }
  if (work.launches > 0) {
    pass.launch = LaunchRecord{kernel.launch.grid, kernel.launch.block, kernel.launch.registers,
                               kernel.launch.shared_bytes};
  }
  if (timed)
    pass.time = TimeRecord{work.time.median_s(), work.time.min_s(),   work.time.noise,
                           work.time.samples_s,  work.time.throttled, work.time.mean_sm_clock_hz};
}

/// Measures the passes of one direction into `passes`, which are the job's from the first of that direction
/// on; times are those of the first placement. @return the device memory that they took
std::int64_t measure_direction(const Job& job, Direction direction, const Machine& machine,
                               WorkProfiler& profiler, const Counted& counted, PassRecord* passes) {
  const ProgramOptions options = options_on(machine, job.kernel->row, job.problem, direction, job.options);
  std::vector<WorkMeasurement> measured;  // by pass
  std::int64_t device_bytes = 0;
  for (int placement = 0; placement < std::max(1, counted.placements); ++placement) {
    const bool first = placement == 0;
    PassRunner runner(*job.kernel, job.problem, direction, options,
                      counted.placements > 0 ? std::optional<std::uint64_t>(placement) : std::nullopt);
    std::this_thread::sleep_for(time_to_clear(runner.device_bytes()));  // as many as the last runner freed
    for (std::size_t i = 0; i < runner.programs().size(); ++i) {
      const std::string name = fmt::format("{} {}", job.kernel->row.name, passes[i].name);
      const auto launch = [&](CUstream_st* stream) { runner.launch(i, stream); };
      const auto prepare = [&](CUstream_st* stream) { runner.prepare(i, stream); };
      if (first) measured.push_back(profiler.measure(name, launch, counted.launches, prepare));
      if (!first) measured[i].counted.push_back(profiler.count(name, launch, prepare));
    }
    runner.check();
    if (first) device_bytes = runner.device_bytes();
  }
  for (std::size_t i = 0; i < measured.size(); ++i) add_measurement(passes[i], measured[i], counted.timed);
  return device_bytes;
}

RunEntry measure_job(const Job& job, WorkProfiler& profiler, const Machine& machine, bool replay,
                     const Counted& counted) {
  const NvtxRange range(job.title().c_str());
  RunEntry run = simulate_run(job.kernel->row, job.problem, job.passes, machine,
                              {.pages = counted.pages(), .replay = replay});
  std::size_t first = 0;
  for (const Direction direction : job.directions) {
    run.device_bytes[std::string(to_string(direction))] =
        measure_direction(job, direction, machine, profiler, counted, &run.passes[first]);
    while (first < run.passes.size() && run.passes[first].direction == direction) ++first;
  }
  return run;
}

RunRecord start_measured_record(const CommandContext& context, const WorkProfiler& profiler) {
  RunRecord record = start_record(context.argv);
  record.machine.name = profiler.device();
  record.machine.chip = profiler.chip();
  record.machine.cuda = profiler.driver();
  record.machine.source = "the driver and CUPTI of this machine";
  return record;
}

/// ", medians of 9 launches"; nothing where one is taken.
std::string counted_text(const Counted& counted) {
  if (counted.placements == 1) return ", pages at random places";
  if (counted.placements > 1) {
    return fmt::format(", pages at random places, medians of {} placements", counted.placements);
  }
  return counted.launches == 1 ? "" : fmt::format(", medians of {} launches", counted.launches);
}

std::string how_measured(const WorkProfiler& profiler, const std::string& metrics, L2State l2,
                         const Counted& counted) {
  std::string text =
      fmt::format("{} ({}), {} in {} {}, {} L2{}; times from runs of their own, without counters\n",
                  profiler.device(), profiler.chip(), metrics, profiler.passes(),
                  profiler.passes() == 1 ? "pass" : "passes", to_string(l2), counted_text(counted));
  const std::string missing = profiler.missing_metrics();
  if (!missing.empty()) text += "not counted on this chip: " + missing + "\n";
  return text;
}

}  // namespace

void ProfileKernelOptions::add_to(CLI::App& command) {
  problem.add_to(command);
  kernel.add_to(command, true);
  sweep.add_to(command);
  rows.add_to(command);
  add_value(command, "--machine", machine, "MACHINE|FILE.json",
            "machine model that simulates and bounds (h200)", "Machine");
  add_value(command, "--launches", launches_text, "N",
            fmt::format("launches of each pass that counters are taken from, 1 ... {}: the record holds "
                        "medians, and how far DRAM reads ranged (1)",
                        kMostLaunches));
  add_value(command, "--placements", placements_text, "N",
            fmt::format("launch each pass with its pages at so many random placements, 1 ... {}; medians "
                        "and range as of --launches",
                        kMostLaunches))
      ->excludes("--launches");
  command.add_flag("--cta-progress", cta_progress,
                   "instead of counters, how evenly CTAs advance: clocks of SMs, and "
                   "with -D TILESCOPE_STEP_CLOCK=ON how an SM divides its time");
  command.add_flag("--paces", cta_progress)->group("");  // its former name
  command.add_flag("--untimed", untimed, "counters alone, without times, which take longer");
  command.add_flag("--closed-form", closed_form_only, "no simulation beside what is measured")
      ->group("Machine");
}

int ProfileKernelOptions::launches() const {
  if (!launches_text) return 1;
  return static_cast<int>(parse_integer_in("--launches", *launches_text, 1, kMostLaunches));
}

int ProfileKernelOptions::placements() const {
  if (!placements_text) return 0;
  return static_cast<int>(parse_integer_in("--placements", *placements_text, 1, kMostLaunches));
}

std::function<void()> kernels_in_turn(ProfileKernelOptions& arguments, const CommandContext& context) {
  constexpr int kLaunches = 10;  // of each pass
  const Machine machine = load_machine(arguments.machine);
  const auto plan = std::make_shared<Plan>(plan_jobs(arguments, machine));
  for (const Job& job : plan->jobs) require_runnable(job.kernel->row);
  if (!arguments.rows.judge(rows_jobs(*plan, machine), context)) return nullptr;
  context.print(plan->refusals.text(plan->jobs.size()));
  return [plan] {
    for (const Job& job : plan->jobs) {
      for (const Direction direction : job.directions) {
        PassRunner runner(*job.kernel, job.problem, direction, job.options);
        for (int i = 0; i < kLaunches; ++i) {
          for (std::size_t pass = 0; pass < runner.programs().size(); ++pass) runner.launch(pass, nullptr);
        }
        runner.check();
      }
    }
  };
}

int profile_kernels(ProfileKernelOptions& arguments, const std::string& metrics, L2State l2,
                    const CommandContext& context) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kBetweenSaves{5};
  const Counted counted{arguments.launches(), arguments.placements(), !arguments.untimed};
  const Machine machine = load_machine(arguments.machine);
  Plan plan = plan_jobs(arguments, machine);
  for (const Job& job : plan.jobs) require_runnable(job.kernel->row);
  // A pass may take seconds, and a sweep has many: enough samples for a median within some tenths of a
  // percent.
  TimerOptions timing{.l2 = l2, .warm_up = 1, .max_samples = 100, .min_time_s = 0.02, .time_limit_s = 1.5};
  if (arguments.untimed)
    timing = {.l2 = l2, .warm_up = 0, .max_samples = 1, .min_time_s = 0, .time_limit_s = 0, .least_clock = 0};
  WorkProfiler profiler(metrics, timing);
  if (!arguments.rows.judge(rows_jobs(plan, machine), context)) return kCheckFailed;
  RunRecord record = start_measured_record(context, profiler);
  auto saved = Clock::now();
  const auto save = [&] {
    record.refused = plan.refusals.lines();
    arguments.rows.note_in(record.runs);
    context.write_record(record);
    saved = Clock::now();
  };
  std::size_t measured = 0;  // directions
  {
    Progress progress(context, "measuring", static_cast<std::int64_t>(plan.jobs.size()));
    for (const Job& job : plan.jobs) {
      progress.step(job.title());
      const auto measure = [&] {
        record.runs.push_back(measure_job(job, profiler, machine, !arguments.closed_form_only, counted));
        record.runs.back().l2 = to_string(l2);
        record.runs.back().inputs = InputKind::normal;
        measured += job.directions.size();
      };
      plan.refusals.allow(std::string(job.kernel->row.name), describe(job.problem), measure,
                          job.directions.size());
      // What has been measured is not lost with the process.
      if (context.json != "-" && Clock::now() - saved >= kBetweenSaves) save();
    }
  }
  if (record.runs.empty()) plan.refusals.throw_first();
  context.print(how_measured(profiler, metrics, l2, counted));
  if (arguments.sweep.given()) {
    context.print("\n");
    context.print(sweep_table(record.runs));
    context.print(plan.refusals.text(measured));
  } else {
    for (std::size_t i = 0; i < record.runs.size(); ++i) {
      for (const Direction direction : plan.jobs[i].directions) {
        const RunEntry& run = record.runs[i];
        Table measured = measured_table(run, direction, plan.jobs[i].kernel->row.algorithm, machine);
        measured.title = fmt::format("\n{}, {}", plan.jobs[i].title(), to_string(direction));
        context.print(Output(measured) + "\n" + counter_table(run, direction, metrics) +
                      time_table(run, direction));
      }
    }
  }
  for (const RunEntry& run : record.runs) {
    for (const PassRecord& pass : run.passes) {
      if (const auto why = too_few_reads(run, pass)) context.print(wrapped("warning: " + *why));
    }
  }
  save();
  return kFine;
}

}  // namespace tilescope::cli
