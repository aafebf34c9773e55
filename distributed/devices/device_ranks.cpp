// SPDX-License-Identifier: Apache-2.0
#include "distributed/devices/device_ranks.hpp"

#include <algorithm>

#include "cpu_ref/judge/equivalence.hpp"
#include "distributed/devices/device_rank.hpp"
#include "distributed/devices/streams.hpp"
#include "distributed/execution/rank_failure.hpp"
#include "distributed/processes/process_group.hpp"
#include "gpu/launch/pass_runner.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

/// Why a kernel does not take one of the program's launches, or nothing.
std::optional<std::string> refusal_of(const GpuKernel& kernel, const DistributedProgram& program,
                                      const Chip& chip) {
  const Kernel& row = kernel.row;
  for (const Operation& operation : program.operations) {
    const Attend* const attend = std::get_if<Attend>(&operation.what);
    if (attend == nullptr) continue;
    const AttentionProblem problem = program.slice_problem(*attend);
    const ProgramOptions options = options_with_shared_dq(row, problem);
    if (const auto reason = row.refusal(problem, program.direction, options)) return reason;
    if (const auto lack = row.chip_lack(chip, problem, program.direction, options)) return lack;
    if (const auto lack = build_lack(row, problem, program.direction, options)) return lack;
    if (program.direction == Direction::forward) continue;
    for (const TileProgram& pass : row.programs(program.direction, problem, options)) {
      const bool taken =
          pass.name == PassName::delta || pass.name == PassName::dkdvdq || pass.name == PassName::convert;
      if (!taken) return "has no fused backward pass, whose dQ sums several launches can share";
    }
  }
  return std::nullopt;
}

const GpuKernel& choose_kernel(const DistributedProgram& program, const DeviceRankOptions& options) {
  const Chip chip = current_device().chip;
  if (options.kernel != nullptr) {
    const auto refusal = refusal_of(*options.kernel, program, chip);
    if (!refusal) return *options.kernel;
    throw BadInput("kernel", std::string(options.kernel->row.name), *refusal);
  }
  std::string reasons;
  for (const Kernel* row : rank_kernels()) {
    const GpuKernel& kernel = find_gpu_kernel(row->name);
    const auto refusal = refusal_of(kernel, program, chip);
    if (!refusal) return kernel;
    reasons += (reasons.empty() ? "" : "; ") + std::string(row->name) + " " + *refusal;
  }
  throw BadInput("problem", describe(program.problem), "no kernel takes its launches: " + reasons);
}

void enable_peer_access(int ranks) {
  for (int from = 0; from < ranks; ++from) {
    check_cuda(cudaSetDevice(from), "choosing a device");
    for (int to = 0; to < ranks; ++to) {
      if (to == from) continue;
      const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
      if (status == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
        continue;
      }
      check_cuda(status,
                 "enabling peer access from GPU " + std::to_string(from) + " to " + std::to_string(to));
    }
  }
}

}  // namespace

void require_devices(int ranks) {
  require_device();
  int visible = 0;
  check_cuda(cudaGetDeviceCount(&visible), "counting devices");
  if (visible < ranks) {
    throw MachineLacks("--gpus " + std::to_string(ranks) + " needs " + std::to_string(ranks) + " GPUs, and " +
                       std::to_string(visible) + (visible == 1 ? " is" : " are") +
                       " visible; verify with --kernel cpu:flash2 and simulate need none");
  }
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      int reaches = 1;
      if (from != to) check_cuda(cudaDeviceCanAccessPeer(&reaches, from, to), "asking for peer access");
      if (reaches != 0) continue;
      throw MachineLacks("GPU " + std::to_string(from) + " cannot reach the memory of GPU " +
                         std::to_string(to) +
                         ": several GPUs need peer access, which `nvidia-smi topo -p2p r` shows");
    }
  }
}

std::shared_ptr<NcclRanks> connect_nccl(int ranks) {
  require_devices(ranks);
  return std::make_shared<NcclRanks>(ranks);
}

std::shared_ptr<NcclRanks> connect_nccl(ProcessGroup& processes) {
  return std::make_shared<NcclRanks>(processes, device_of(processes));
}

int device_of(const ProcessGroup& processes) {
  require_device();
  int visible = 0;
  check_cuda(cudaGetDeviceCount(&visible), "counting devices");
  if (visible == 1) return 0;  // the launcher has hidden the others
  if (processes.local_rank() < visible) return processes.local_rank();
  throw MachineLacks("process " + std::to_string(processes.local_rank()) +
                     " of this host has no GPU: " + std::to_string(visible) + " are visible");
}

struct DeviceRanks::State {
  RankedProgram shared;
  DeviceRankOptions options;
  int device = 0;  // that is current before and after
};

DeviceRanks::DeviceRanks(const DistributedProgram& program, const DeviceRankOptions& options)
    : state_(std::make_unique<State>()) {
  ProcessGroup* const processes = options.processes.get();
  processes != nullptr ? void(state_->device = device_of(*processes)) : require_devices(program.ranks);
  check_cuda(cudaSetDevice(state_->device), "choosing a device");
  state_->options = options;
  RankedProgram& shared = state_->shared;
  shared.program = program;
  shared.accumulation = plan_accumulation(program);
  drop_waits_between_parts(shared.program, shared.accumulation);
  shared.plans = enqueue_plans(shared.program, options.transport);
  shared.kernel = &choose_kernel(shared.program, options);
  shared.transport = options.transport;
  shared.memory.assign(program.buffers.size(), nullptr);
  if (processes == nullptr) enable_peer_access(program.ranks);
  if (options.transport == Transport::nccl && program.ranks > 1) {
    shared.nccl = options.nccl != nullptr ? options.nccl
                  : processes != nullptr  ? connect_nccl(*processes)
                                          : connect_nccl(program.ranks);
  }
  for (int rank = 0; rank < program.ranks; ++rank) {
    const bool here = processes == nullptr || processes->rank() == rank;
    shared.devices.push_back(processes == nullptr ? rank : state_->device);
    shared.ranks.push_back(here ? std::make_unique<DeviceRank>(rank, shared) : nullptr);
  }
  check_cuda(cudaSetDevice(state_->device), "choosing a device");
}

DeviceRanks::~DeviceRanks() {
  const int device = state_->device;
  state_.reset();
  cudaSetDevice(device);
}

template <typename Visitor>
void DeviceRanks::for_each_rank(Visitor&& visit) const {
  for (const auto& rank : state_->shared.ranks) {
    if (rank != nullptr) visit(*rank);
  }
  check_cuda(cudaSetDevice(state_->device), "choosing a device");
}

void DeviceRanks::upload(const TensorSet& tensors) {
  for_each_rank([&](DeviceRank& rank) { rank.upload(tensors); });
}
void DeviceRanks::fill() {
  for_each_rank([](DeviceRank& rank) { rank.fill(); });
}

void DeviceRanks::download(TensorSet& tensors) {
  ProcessGroup* const processes = state_->options.processes.get();
  const auto bytes_of = [&](TensorName name) {
    Tensor& tensor = tensors[name];
    return std::span(static_cast<std::uint8_t*>(tensor.data()), static_cast<std::size_t>(tensor.bytes()));
  };
  const auto names = output_tensors(state_->shared.program.problem, state_->shared.program.direction);
  if (processes != nullptr) {
    for (const TensorName name : names) std::ranges::fill(bytes_of(name), std::uint8_t{0});
  }
  for_each_rank([&](DeviceRank& rank) { rank.download(tensors); });
  if (processes == nullptr) return;
  // Each row comes from one rank, and is 0 with the others.
  for (const TensorName name : names) processes->reduce(bytes_of(name), std::bit_or<std::uint8_t>());
}

double DeviceRanks::run(int repetitions, int timed, WorkShare share) {
  RankedProgram& shared = state_->shared;
  ProcessGroup* const processes = state_->options.processes.get();
  std::vector<RankQueue*> queues;
  for (const auto& rank : shared.ranks) queues.push_back(rank.get());
  for_each_rank([&](DeviceRank& rank) { rank.set_run(share, repetitions, repetitions - timed); });
  QueueOptions options{
      .repetitions = repetitions, .time_limit = state_->options.time_limit, .before = state_->options.before};
  if (processes != nullptr) {
    options.elsewhere = [processes] { processes->check(); };
    options.stalled = [processes](const std::string& why) { processes->stalled(why); };
  }
  try {
    run_queues(shared.program, shared.plans, queues, options);
  } catch (const std::exception& error) {
    if (processes != nullptr) processes->fail(error.what());
    throw;
  }
  double slowest = 0;
  if (timed == 0) return slowest;
  for_each_rank([&](DeviceRank& rank) { slowest = std::max(slowest, rank.elapsed_seconds() / timed); });
  if (processes != nullptr)
    processes->reduce(std::span(&slowest, 1), [](double a, double b) { return std::max(a, b); });
  return slowest;
}

std::string_view DeviceRanks::kernel() const { return state_->shared.kernel->row.name; }

std::vector<std::int64_t> DeviceRanks::memory_bytes() const {
  std::vector<std::int64_t> bytes;
  for (const auto& rank : state_->shared.ranks) bytes.push_back(rank != nullptr ? rank->memory_bytes() : 0);
  return bytes;
}

struct OneDevice::State {
  int device;
  PassRunner runner;
  Stream stream;
  Event begin{true}, end{true};
};

OneDevice::OneDevice(const GpuKernel& kernel, const AttentionProblem& problem, Direction direction,
                     int device) {
  check_cuda(cudaSetDevice(device), "choosing a device");
  state_.reset(new State{device, {kernel, problem, direction, kernel.row.default_options(problem)}, {}});
}
OneDevice::~OneDevice() = default;

double OneDevice::run(int repetitions, int timed) {
  check_cuda(cudaSetDevice(state_->device), "choosing a device");
  auto& [device, runner, stream, begin, end] = *state_;
  for (int turn = 0; turn < repetitions; ++turn) {
    if (turn == repetitions - timed)
      check_cuda(cudaEventRecord(begin.get(), stream.get()), "taking the time");
    for (std::size_t pass = 0; pass < runner.programs().size(); ++pass) runner.launch(pass, stream.get());
  }
  check_cuda(cudaEventRecord(end.get(), stream.get()), "taking the time");
  stream.synchronize("timing one GPU");
  runner.check();
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "reading a time");
  return 1e-3 * static_cast<double>(milliseconds) / timed;
}

}  // namespace tilescope
