// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/cli/verify/verify.hpp"
#include "analysis/records/distributed_record.hpp"
#include "common/number_format.hpp"
#include "distributed/counts/schedule_fit.hpp"
#include "distributed/devices/device_ranks.hpp"

namespace tilescope::cli {

void GpuOptions::add_to(CLI::App& command, const std::vector<std::string>& others, bool on_devices) {
  constexpr const char* kGroup = "Several GPUs";
  CLI::Option* const gpus = add_value(command, "--gpus", gpus_, on_devices ? "N" : "N,N,...",
                                      "so many GPUs share the problem, by --schedule", kGroup);
  for (const std::string& other : others) gpus->excludes(command.get_option(other));
  add_value(command, "--schedule", schedule_, "NAMES",
            "how they share it (tilescope list schedules); default zigzag", kGroup);
  add_value(command, "--ulysses", ulysses_, "N",
            "of ulysses-ring: how many GPUs share the heads; default: the largest number that divides GPUs "
            "and heads",
            kGroup);
  if (!on_devices) return;
  add_value(command, "--transport", transport_, "copy-engine|nccl",
            "what carries copies between GPUs (copy-engine)", kGroup);
  command
      .add_flag(
          "--processes", processes_,
          "a process for each GPU, started by torchrun --no-python, mpirun or srun; they communicate by NCCL")
      ->group(kGroup);
}

void GpuOptions::require_complete() const {
  if (gpus_) return;
  if (schedule_) throw BadInput("--schedule", *schedule_, "must stand with --gpus N");
  if (ulysses_) throw BadInput("--ulysses", *ulysses_, "must stand with --gpus N");
  if (transport_) throw BadInput("--transport", *transport_, "must stand with --gpus N");
  if (processes_) throw BadInput("--processes", "given", "must stand with --gpus N");
}

std::vector<DistributedOptions> GpuOptions::across() const {
  require_complete();
  DistributedOptions options;
  if (ulysses_) options.ulysses = static_cast<int>(parse_integer_in("ulysses", *ulysses_, 1, kMostRanks));
  std::vector<DistributedOptions> all;
  for (const std::string& gpus : words_of_list(*gpus_)) {
    options.ranks = static_cast<int>(parse_integer_in("gpus", gpus, 1, kMostRanks));
    for (const std::string& name :
         words_of_list(schedule_.value_or(std::string(to_string(LinkSchedule::zigzag))))) {
      options.schedule = parse_link_schedule(name);
      all.push_back(options);
    }
  }
  return all;
}

std::vector<DistributedOptions> GpuOptions::all() const {
  require_complete();
  if (words_of_list(*gpus_).size() > 1) throw BadInput("--gpus", *gpus_, "must be one number here");
  return across();
}

DistributedOptions GpuOptions::options() const {
  const std::vector<DistributedOptions> options = all();
  if (options.size() > 1) throw BadInput("--schedule", *schedule_, "must be one name here");
  return options.front();
}

Transport GpuOptions::transport() const {
  const Transport otherwise = processes_ ? Transport::nccl : Transport::copy_engine;
  const Transport transport = transport_ ? parse_transport(*transport_) : otherwise;
  if (processes_ && transport != Transport::nccl)
    throw BadInput("--transport", *transport_,
                   "must be nccl with --processes: copy engines need one process");
  return transport;
}

void GpuOptions::require_one_process(const std::string& why) const {
  if (processes_) throw BadInput("--processes", "given", "must be left out: " + why);
}

std::shared_ptr<ProcessGroup> GpuOptions::processes(bool on_devices) const {
  if (!processes_) return nullptr;
  if (!on_devices)
    throw BadInput("--processes", "given", "must be left out with cpu:flash2, whose ranks are threads");
  const ProcessPlace place = launched_process();
  const int gpus = all().front().ranks;
  if (place.ranks != gpus) {
    throw BadInput("--gpus", std::to_string(gpus),
                   "must be " + std::to_string(place.ranks) + " with --processes: so many were started");
  }
  require_devices(1);
  return std::make_shared<ProcessGroup>(place);
}

namespace {

/// Of one pass: "link bytes as counted: 12.58 MB", or where they differ.
std::string exchanged_line(Direction direction, const std::vector<LinkBytes>& seen,
                           const std::vector<LinkBytes>& formula) {
  std::int64_t sent = 0;
  for (std::size_t r = 0; r < seen.size(); ++r) {
    sent += seen[r].sent;
    if (seen[r] == formula[r]) continue;
    return fmt::format("       {}: GPU {} sent {} B and received {} B, by the closed form {} B and {} B\n",
                       to_string(direction), r, seen[r].sent, seen[r].received, formula[r].sent,
                       formula[r].received);
  }
  return fmt::format("       {}: {} B exchanged by all, each GPU's as its closed form says\n",
                     to_string(direction), sent);
}

DistributedPass exchanged_pass(Direction direction, const std::vector<LinkBytes>& seen,
                               const std::vector<LinkBytes>& formula) {
  DistributedPass pass{.name = std::string(to_string(direction))};
  for (std::size_t r = 0; r < seen.size(); ++r)
    pass.gpus.push_back({.link = {link_record(seen[r])}, .closed_form = link_record(formula[r])});
  return pass;
}

/// One schedule judged: its line, and its run of the record. @return whether it passed
bool judge_schedule(Reference& reference, Direction direction, InputKind inputs,
                    const DistributedOptions& options, const ProgramRunner& run, std::string& line,
                    DistributedRun& entry) {
  std::string text;
  bool passed = false;
  try {
    const RankVerdict result = judge_on_ranks(reference, direction, options, run);
    passed = result.verdict.passed();
    for (const TensorVerdict& tensor : result.verdict.tensors) {
      text += fmt::format(" {} {:.2f}", record_name(tensor.tensor), tensor.share);
      entry.errors[std::string(record_name(tensor.tensor))] = {tensor.error.max_abs, tensor.error.rmse,
                                                               tensor.bound};
    }
    text += "\n" + failure_lines(reference.problem(), result.verdict, "exact");
    for (const Direction step : {Direction::forward, Direction::backward}) {
      const auto& seen = step == Direction::forward ? result.forward : result.backward;
      if (step > direction || seen.empty()) break;
      const auto formula = link_closed_form(reference.problem(), step, options);
      passed = passed && seen == formula;
      text += exchanged_line(step, seen, formula);
      entry.passes.push_back(exchanged_pass(step, seen, formula));
    }
  } catch (const RankFailure& failure) {
    text = fmt::format("\n       {}\n", failure.what());
    entry.failure = failure.what();
  }
  line = fmt::format("{} {} {}, {}:{}", passed ? "ok  " : "FAIL", schedule_line(reference.problem(), options),
                     describe(reference.problem()), to_string(inputs), text);
  entry.passed = passed;
  return passed;
}

}  // namespace

CommandContext context_of(const CommandContext& context, const std::shared_ptr<ProcessGroup>& processes) {
  CommandContext own = context;
  if (processes == nullptr || processes->rank() == 0) return own;
  own.quiet = true;
  own.json.clear();
  return own;
}

ProgramRunner program_runner(const GpuOptions& gpus, const std::shared_ptr<ProcessGroup>& processes,
                             const KernelOptions& kernel, const AttentionProblem& problem,
                             const std::string& otherwise) {
  const std::vector<const Kernel*> kernels = kernel.kernels({otherwise});
  const Kernel& chosen = *kernels.front();
  const bool on_devices = chosen.on_gpu();
  if (kernels.size() > 1 || (!on_devices && chosen.name != "cpu:flash2")) {
    throw BadInput("kernel", std::string(kernels.back()->name),
                   "must be cpu:flash2 or one of the GPU's with --gpus");
  }
  for (const DistributedOptions& options : gpus.all()) rank_grid(problem, options);
  if (!on_devices) {
    RankOptions ranks;
    ranks.kernel = &chosen;
    if (kernel.tile_given()) ranks.tile = kernel.program_options(chosen, problem)[PassName::forward].tile;
    return [ranks](const DistributedProgram& program, TensorSet& tensors) {
      return run_on_ranks(program, tensors, ranks);
    };
  }
  if (kernel.tile_given())
    throw BadInput("--tile", "given", "must be left out on several GPUs: kernels take their own");
  DeviceRankOptions options;
  options.transport = gpus.transport();
  options.kernel = &find_gpu_kernel(chosen.name);
  const int ranks = gpus.all().front().ranks;
  options.processes = processes;
  if (processes == nullptr) require_devices(ranks);
  if (options.transport == Transport::nccl && ranks > 1)
    options.nccl = processes != nullptr ? connect_nccl(*processes) : connect_nccl(ranks);
  return [options](const DistributedProgram& program, TensorSet& tensors) {
    DeviceRanks ranks(program, options);
    ranks.upload(tensors);
    ranks.run();
    for (const TensorName name : output_tensors(program.problem, program.direction)) tensors.allocate(name);
    ranks.download(tensors);
    return std::vector<LinkBytes>{};
  };
}

int simulate_distributed(const CommandContext& context, const AttentionProblem& problem,
                         const std::vector<Direction>& directions,
                         const std::vector<DistributedOptions>& schedules, const std::string& machine,
                         const TypedRates& rates) {
  const bool several = schedules.size() > 1;
  if (!several) rank_grid(problem, schedules.front());
  const RankModel model = machine_ranks(machine, problem, directions, rates.given());
  context.print(fmt::format("{}\n{}{}", describe(problem),
                            several ? "" : schedule_line(problem, schedules.front()) + "\n",
                            wrapped(model.line)));
  std::vector<Row> rows = {comparison_heads()};
  std::string left_out;
  const DistributedRecord record = simulate_ranks(
      context.argv, problem, directions, schedules, model,
      [&](const ProgramAccount& account) {
        several ? rows.push_back(comparison_row(account)) : context.print(distributed_table(account));
      },
      [&](const DistributedOptions& options, const BadInput& refusal) {
        left_out += fmt::format("left out: {} on {} GPUs: {}\n", to_string(options.schedule), options.ranks,
                                refusal.what());
      });
  if (several) context.print(Output("\n") + Table{.rows = rows, .indent = "  "} + left_out);
  context.write_json(to_json_text(record));
  return kFine;
}

int verify_distributed(const CommandContext& context, const AttentionProblem& problem, Direction direction,
                       InputKind inputs, const std::vector<DistributedOptions>& schedules,
                       const ProgramRunner& run) {
  DistributedRecord record = distributed_record(context.argv);
  Reference reference(problem, inputs, direction);
  bool all_passed = true;
  for (const DistributedOptions& options : schedules) {
    DistributedRun entry = distributed_run(problem, options);
    std::string line;
    all_passed &= judge_schedule(reference, direction, inputs, options, run, line, entry);
    context.print(line);
    record.runs.push_back(std::move(entry));
  }
  context.write_json(to_json_text(record));
  return all_passed ? kFine : kCheckFailed;
}

namespace {

std::string names_of(const std::vector<LinkSchedule>& schedules) {
  std::string names;
  for (const LinkSchedule schedule : schedules)
    names += (names.empty() ? "" : " or ") + std::string(to_string(schedule));
  return names;
}

std::string fits_text(const std::vector<ScheduleFit>& fits) {
  std::string text;
  for (const ScheduleFit& fit : fits) {
    text +=
        fmt::format("    {}{}{}: {}, seen {:+.2f} %\n", names_of(fit.schedules), fit.how.empty() ? "" : "; ",
                    fit.how, format_bytes(fit.sent_bytes), 100 * fit.difference);
  }
  return text.empty() ? "    no schedule moves that\n" : text;
}

}  // namespace

int explain_link_bytes(const CommandContext& context, const AttentionProblem& problem, Direction direction,
                       int gpus, double sent_bytes) {
  context.print(fmt::format("{}, {} GPUs, {}: {} sent by the GPU that sends most\n{}", describe(problem),
                            gpus, to_string(direction), format_bytes(sent_bytes),
                            fits_text(fit_schedules(problem, direction, gpus, sent_bytes))));
  return kFine;
}

int explain_peers(const CommandContext& context, const DistributedPeers& peers) {
  bool counted = false;
  for (const DistributedPeerRun& run : peers.runs) {
    const std::int64_t tokens = run.tokens_a_gpu * peers.gpus;
    const AttentionProblem problem{.heads = peers.heads,
                                   .heads_kv = peers.heads_kv,
                                   .seqlen_q = tokens,
                                   .seqlen_k = tokens,
                                   .head_dim = peers.head_dim,
                                   .dtype = ElementType::bf16,
                                   .causal = true};
    for (const auto& [direction, seen] : {std::pair(Direction::forward, run.forward_link_bytes),
                                          std::pair(Direction::backward, run.backward_link_bytes)}) {
      if (!seen || *seen <= 0) continue;
      counted = true;
      context.print(run.peer + "\n  ");
      explain_link_bytes(context, problem, direction, static_cast<int>(peers.gpus), *seen);
    }
  }
  if (!counted)
    throw BadInput("RECORD", "this one", "must say what the links carried; this one has times alone");
  return kFine;
}

}  // namespace tilescope::cli
