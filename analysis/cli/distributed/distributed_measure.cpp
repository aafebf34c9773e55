// SPDX-License-Identifier: Apache-2.0
// bench and profile with --gpus: what GPUs take, and what their links carry.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/text_table.hpp"
#include "common/errors.hpp"
#include "common/number_format.hpp"
#include "common/statistics.hpp"
#include "distributed/devices/device_ranks.hpp"
#include "profiler/counters/block_counters.hpp"
#include "profiler/counters/link_throughput.hpp"

namespace tilescope::cli {
namespace {

constexpr const char* kCounters =
    "nvltx__bytes_data_user.sum,nvlrx__bytes_data_user.sum,nvltx__bytes.sum,nvlrx__bytes.sum";
/// NVML brings its counts up to date now and then.
constexpr std::chrono::milliseconds kUntilNvmlKnows(150);

/// What the links of several GPUs carry meanwhile: by their hardware counters, and by NVML's, where either
/// can be read.
struct MeterReading {
  std::optional<LinkCount> counters, nvml;
};

class LinkMeter {
 public:
  /// @throws MachineLacks where neither can be read, with the reasons of both
  explicit LinkMeter(int gpus);
  void open();
  /// By GPU, since open(). Waits for the devices.
  std::vector<MeterReading> close();
  /// Why one of the two cannot be read; "" if both can.
  const std::string& lack() const { return lack_; }

 private:
  std::vector<std::unique_ptr<BlockCounters>> counters_;  // by GPU, or none
  std::vector<LinkThroughput> nvml_;
  std::vector<LinkCount> before_;
  std::string lack_;
};

LinkMeter::LinkMeter(int gpus) {
  try {
    for (int gpu = 0; gpu < gpus; ++gpu)
      counters_.push_back(std::make_unique<BlockCounters>(kCounters, gpu, L2State::warm));
  } catch (const std::exception& lack) {
    counters_.clear();
    lack_ = lack.what();
  }
  try {
    for (int gpu = 0; gpu < gpus; ++gpu) nvml_.emplace_back(gpu);
  } catch (const MachineLacks& lack) {
    nvml_.clear();
    lack_ += (lack_.empty() ? "" : "; ") + std::string(lack.what());
  }
  if (counters_.empty() && nvml_.empty())
    throw MachineLacks("the bytes of links cannot be counted: " + lack_);
}

void LinkMeter::open() {
  before_.clear();
  if (!nvml_.empty()) std::this_thread::sleep_for(kUntilNvmlKnows);
  for (const LinkThroughput& gpu : nvml_) before_.push_back(gpu.read());
  for (const auto& gpu : counters_) gpu->open();
}

std::vector<MeterReading> LinkMeter::close() {
  std::vector<MeterReading> readings(std::max(counters_.size(), nvml_.size()));
  for (std::size_t gpu = 0; gpu < counters_.size(); ++gpu) {
    const auto seen = counters_[gpu]->close("GPU " + std::to_string(gpu)).counters;
    readings[gpu].counters = {seen.at("nvltx__bytes_data_user.sum"), seen.at("nvlrx__bytes_data_user.sum"),
                              seen.at("nvltx__bytes.sum"), seen.at("nvlrx__bytes.sum")};
  }
  if (!nvml_.empty()) std::this_thread::sleep_for(kUntilNvmlKnows);
  for (std::size_t gpu = 0; gpu < nvml_.size(); ++gpu) readings[gpu].nvml = nvml_[gpu].read() - before_[gpu];
  return readings;
}

DistributedRecord measured_record(const CommandContext& context, const DeviceRuns& runs) {
  DistributedRecord record = distributed_record(context.argv);
  const DeviceFacts device = device_facts().value();
  record.machine = RankMachine{.name = device.name, .driver = device.driver, .cuda = device.cuda};
  record.transport = to_string(runs.transport);
  return record;
}

DeviceRankOptions rank_options(const DeviceRuns& runs) {
  DeviceRankOptions options;
  options.transport = runs.transport;
  options.kernel = runs.kernel;
  options.processes = runs.processes;
  const int ranks = runs.schedules.front().ranks;
  if (options.transport == Transport::nccl && ranks > 1)
    options.nccl = runs.processes != nullptr ? connect_nccl(*runs.processes) : connect_nccl(ranks);
  return options;
}

/// Every schedule is refused, or none, before anything runs.
void require_all(const DeviceRuns& runs) {
  int most = 1;
  for (const DistributedOptions& options : runs.schedules) {
    for (const AttentionProblem& problem : runs.problems) rank_grid(problem, options);
    most = std::max(most, options.ranks);
  }
  runs.processes != nullptr ? void(device_of(*runs.processes)) : require_devices(most);
}

/// A program that is ready to run.
struct Measured {
  const DistributedProgram& program;
  const DistributedOptions& options;
  DeviceRanks& ranks;
};
/// The record of all problems, schedules and passes, `measure` saying what to keep of each.
template <typename Measure>
DistributedRecord measure_each(const CommandContext& context, const DeviceRuns& runs, Measure&& measure) {
  require_all(runs);
  const DeviceRankOptions ranked = rank_options(runs);
  DistributedRecord record = measured_record(context, runs);
  for (const AttentionProblem& problem : runs.problems) {
    for (const DistributedOptions& options : runs.schedules) {
      DistributedRun run = distributed_run(problem, options);
      for (const Direction direction : runs.directions) {
        const DistributedProgram program = build_distributed(problem, direction, options);
        DeviceRanks ranks(program, ranked);
        ranks.fill();
        run.kernel = ranks.kernel();
        run.passes.push_back(measure(Measured{program, options, ranks}));
      }
      record.runs.push_back(std::move(run));
    }
  }
  return record;
}

/// Times of one program, and what they say.
struct Timed {
  double everything_s = 0, launches_s = 0, link_s = 0, one_gpu_s = 0;
  double flops = 0;  // useful ones of all GPUs
  int ranks = 1;
  double efficiency() const { return one_gpu_s / (ranks * everything_s); }
  double flops_per_gpu() const { return flops / (ranks * everything_s); }
  /// The share of the link's time in which launches ran; nothing where nothing moves.
  std::optional<double> hidden() const {
    if (ranks == 1 || link_s <= 0) return std::nullopt;
    return std::clamp((launches_s + link_s - everything_s) / link_s, 0.0, 1.0);
  }
};

/// All four in turn, again and again, and the medians: under sustained load power lowers the clock, so that
/// what runs first runs faster.
Timed time_program(const DistributedProgram& program, DeviceRanks& ranks, OneDevice& alone, int rounds) {
  constexpr int kTimed = 2, kRepetitions = 1 + kTimed;
  std::vector<double> everything, launches, link, one_gpu;
  for (int round = 0; round <= rounds; ++round) {  // the first warms up
    one_gpu.push_back(alone.run(kRepetitions, kTimed));
    everything.push_back(ranks.run(kRepetitions, kTimed));
    launches.push_back(ranks.run(kRepetitions, kTimed, WorkShare::launches));
    link.push_back(program.ranks > 1 ? ranks.run(kRepetitions, kTimed, WorkShare::link) : 0);
  }
  const auto middle = [](std::vector<double>& samples) {
    samples.erase(samples.begin());
    return median_of(samples);
  };
  return {.everything_s = middle(everything),
          .launches_s = middle(launches),
          .link_s = middle(link),
          .one_gpu_s = middle(one_gpu),
          .flops = useful_flops(program.direction, program.problem.visible_pairs(), program.problem.head_dim),
          .ranks = program.ranks};
}

/// The model with the rate that one GPU has with the whole problem.
RankTimeline model_of(const DistributedProgram& program, const DeviceRuns& runs, const Timed& timed) {
  GivenRates given;
  given.flops_per_second = timed.flops / timed.one_gpu_s;
  return ProgramAccount(program, machine_ranks(runs.machine, program.problem, {program.direction}, given))
      .timeline;
}

DistributedPass timed_pass(const DistributedProgram& program, const DeviceRanks& ranks, const Timed& timed,
                           const RankTimeline& model) {
  DistributedPass pass{.name = std::string(to_string(program.direction)),
                       .time_s = timed.everything_s,
                       .launches_s = timed.launches_s,
                       .link_s = timed.link_s,
                       .one_gpu_s = timed.one_gpu_s,
                       .efficiency = timed.efficiency(),
                       .hidden_share = timed.hidden(),
                       .flops_per_second_a_gpu = timed.flops_per_gpu(),
                       .model = ModelledTimes{model.seconds, model.efficiency}};
  const std::vector<LinkBytes> link = link_traffic(program);
  const std::vector<std::int64_t> memory = ranks.memory_bytes();
  for (std::size_t r = 0; r < link.size(); ++r)
    pass.gpus.push_back({.link = {link_record(link[r])}, .memory_bytes = memory[r]});
  return pass;
}

Row timed_row(const DistributedProgram& program, const Timed& timed, const RankTimeline& model) {
  const auto hidden = timed.hidden();
  const double teraflops = timed.flops_per_gpu() / 1e12;
  return {to_string(program.schedule),
          to_string(program.direction),
          as_count(program.problem.seqlen_k / program.ranks),
          in_seconds(timed.everything_s),
          as_number(fmt::format("{:.0f}", teraflops), teraflops),
          as_percent(timed.efficiency()),
          as_percent(model.efficiency),
          in_seconds(timed.launches_s),
          program.ranks > 1 ? in_seconds(timed.link_s) : Cell("-"),
          hidden ? as_percent(*hidden) : Cell("-")};
}

/// Largest difference between counted and expected, as a share of what is expected.
double largest_difference(const DistributedPass& pass) {
  double largest = 0;
  for (const GpuRecord& gpu : pass.gpus) {
    for (const auto way : {&LinkRecord::sent_bytes, &LinkRecord::received_bytes}) {
      const double expected = *gpu.closed_form.*way, seen = gpu.link.data.*way;
      if (expected > 0) largest = std::max(largest, std::abs(seen - expected) / expected);
    }
  }
  return largest;
}

LinkReading reading_of(const LinkCount& count, int repetitions) {
  return {{count.sent / repetitions, count.received / repetitions},
          count.raw_sent / repetitions,
          count.raw_received / repetitions};
}

/// Bytes of one repetition, as the counters saw them or, without these, NVML.
DistributedPass count_program(const DistributedProgram& program, const DistributedOptions& options,
                              DeviceRanks& ranks, LinkMeter& meter) {
  constexpr int kRepetitions = 8, kWarmUps = 2;  // NVML counts whole KiB
  ranks.run(kWarmUps);                           // connections are made, and what they move is over
  meter.open();
  ranks.run(kRepetitions);
  const std::vector<MeterReading> readings = meter.close();
  const std::vector<LinkBytes> formula = link_closed_form(program.problem, program.direction, options);
  DistributedPass pass{.name = std::string(to_string(program.direction)),
                       .counted_by = readings.front().counters ? "counters" : "NVML",
                       .repetitions = kRepetitions};
  for (std::size_t r = 0; r < readings.size(); ++r) {
    const auto& [counters, nvml] = readings[r];
    GpuRecord& gpu = pass.gpus.emplace_back();
    gpu.link = reading_of(counters ? *counters : *nvml, kRepetitions);
    gpu.closed_form = link_record(formula[r]);
    if (counters && nvml) gpu.nvml = reading_of(*nvml, kRepetitions);
  }
  return pass;
}

std::string counted_lines(const DistributedProgram& program, const DistributedPass& pass) {
  std::string text = fmt::format("{}: {} {}\n", describe(program.problem), to_string(program.schedule),
                                 to_string(program.direction));
  int rank = 0;
  for (const GpuRecord& gpu : pass.gpus) {
    const LinkReading& seen = gpu.link;
    text += fmt::format(
        "  GPU {}: sent {} of {} by the closed form, received {} of {}; with protocol {} and {}\n", rank++,
        format_bytes(seen.data.sent_bytes), format_bytes(gpu.closed_form->sent_bytes),
        format_bytes(seen.data.received_bytes), format_bytes(gpu.closed_form->received_bytes),
        format_bytes(*seen.sent_with_protocol_bytes), format_bytes(*seen.received_with_protocol_bytes));
  }
  return text + fmt::format("  differs by at most {:.4f} %\n", 100 * largest_difference(pass));
}

}  // namespace

const GpuKernel* device_kernel(const KernelOptions& kernel) {
  if (!kernel.given()) return nullptr;
  const std::vector<const Kernel*> kernels = kernel.kernels({});
  if (kernels.size() > 1 || !kernels.front()->on_gpu()) {
    throw BadInput("kernel", std::string(kernels.back()->name), "must be one of the GPU's with --gpus");
  }
  return &find_gpu_kernel(kernels.front()->name);
}

int bench_distributed(const CommandContext& context, const DeviceRuns& runs, int rounds) {
  std::vector<Row> rows = {{"schedule", "pass", "tokens a GPU", "time", "TFLOP/s a GPU", "of one GPU",
                            "model", "launches", "link", "hidden"}};
  const DistributedRecord record = measure_each(context, runs, [&](const Measured& on) {
    OneDevice alone(find_gpu_kernel(on.ranks.kernel()), on.program.problem, on.program.direction,
                    runs.processes != nullptr ? device_of(*runs.processes) : 0);
    const Timed timed = time_program(on.program, on.ranks, alone, rounds);
    const RankTimeline model = model_of(on.program, runs, timed);
    rows.push_back(timed_row(on.program, timed, model));
    return timed_pass(on.program, on.ranks, timed, model);
  });
  context.print(
      Output(describe(runs.problems.front()) + (runs.problems.size() > 1 ? " and other lengths\n" : "\n")) +
      Table{.rows = rows, .indent = "  "} +
      "Of one GPU: its time with the whole problem over the GPUs' together, measured in turn. Model: "
      "the same as the timeline predicts it from one GPU's rate.\n");
  context.write_json(to_json_text(record));
  return kFine;
}

int profile_distributed(const CommandContext& context, const DeviceRuns& runs) {
  require_all(runs);
  LinkMeter meter(runs.schedules.front().ranks);
  if (!meter.lack().empty()) context.print("one source alone: " + meter.lack() + "\n");
  constexpr double kAllowed = 1e-3;  // of what the closed form says
  bool passed = true;
  const DistributedRecord record = measure_each(context, runs, [&](const Measured& on) {
    const DistributedPass pass = count_program(on.program, on.options, on.ranks, meter);
    context.print(counted_lines(on.program, pass));
    passed &= largest_difference(pass) <= kAllowed;
    return pass;
  });
  context.write_json(to_json_text(record));
  return passed ? kFine : kCheckFailed;
}

}  // namespace tilescope::cli
