// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/pass_runner.hpp"

#include "cpu_ref/numeric/descales.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "cpu_ref/primitives/kernel_scale.hpp"
#include "gpu/launch/device_session.hpp"
#include "gpu/launch/random_fill.hpp"

namespace tilescope {
namespace {

using enum TensorName;

/// What a backward pass reads of the forward pass.
constexpr TensorName kForwardResults[] = {out, lse, row_max, row_sum, probs};

void fill(DeviceSession& session, const AttentionProblem& problem, TensorName name) {
  if (!session.holds(name)) return;
  const TensorExtent extent = session.extent_of(name);
  fill_normal(session.buffer(name).data(), extent.elements(), extent.dtype, problem.seed, name,
              session.stream());
}

void make_all_descales(DeviceSession& session, const AttentionProblem& problem) {
  TensorSet made(problem);
  for (const TensorName name : {q, k, v}) made.descales(name) = make_descales(problem, name);
  session.upload_descales(made);
}

void fill_numbers_of_heads(DeviceSession& session, const AttentionProblem& problem) {
  TensorSet made(problem);
  fill_score_operands(made);
  for (const TensorName name : {alibi_slopes, sink}) {
    if (session.holds(name)) session.upload(name, made[name]);
  }
}

void copy(DeviceSession& from, DeviceSession& to, TensorName name) {
  if (!from.holds(name) || !to.holds(name)) return;
  DeviceBuffer &source = from.buffer(name), &target = to.buffer(name);
  check_cuda(cudaMemcpyAsync(target.data(), source.data(), static_cast<std::size_t>(source.bytes()),
                             cudaMemcpyDeviceToDevice, from.stream()),
             "copying " + std::string(to_string(name)));
}

/// @throws MachineLacks before a DeviceSession is made of what this build or machine has not
const GpuKernel& on_this_machine(const GpuKernel& kernel) {
  require_device();
  return kernel;
}

}  // namespace

struct PassRunner::State {
  DeviceSession session;
};

PassRunner::PassRunner(const GpuKernel& kernel, const AttentionProblem& problem, Direction direction,
                       const ProgramOptions& options, std::optional<std::uint64_t> placement)
    : state_(new State{{on_this_machine(kernel).row, kernel.launch, problem, direction, options,
                        TensorLayout::bhnd, placement}}) {
  DeviceSession& session = state_->session;
  for (const TensorName name : {q, k, v}) fill(session, problem, name);
  make_all_descales(session, problem);
  fill_numbers_of_heads(session, problem);
  if (direction == Direction::backward) fill(session, problem, dout);
  session.synchronize();
  if (direction == Direction::forward) return;
  // A tile meant for the backward pass need not be one that the forward pass is compiled for.
  ProgramOptions own = options;
  own.passes = kernel.row.default_options(problem).passes;
  DeviceSession forward(kernel.row, kernel.launch, problem, Direction::forward, own);
  for (const TensorName name : {q, k, v}) fill(forward, problem, name);
  fill_numbers_of_heads(forward, problem);
  for (std::size_t pass = 0; pass < forward.programs().size(); ++pass) forward.launch(pass);
  for (const TensorName name : kForwardResults) copy(forward, session, name);
  forward.synchronize();
}

PassRunner::~PassRunner() = default;

const std::vector<TileProgram>& PassRunner::programs() const { return state_->session.programs(); }

std::int64_t PassRunner::device_bytes() const { return state_->session.device_bytes(); }

void PassRunner::launch(std::size_t index, CUstream_st* stream) { state_->session.launch(index, stream); }

void PassRunner::prepare(std::size_t index, CUstream_st* stream) {
  const TileProgram& program = programs()[index];
  if (program.name == PassName::dkdvdq && program.dq_start != DqStart::cleared) launch(index - 1, stream);
}

Tensor PassRunner::head(TensorName name, std::int64_t batch_head) {
  DeviceSession& session = state_->session;
  check_cuda(cudaDeviceSynchronize(), "running the passes");
  if (name != lse || session.holds(lse)) return session.head(name, batch_head);
  Tensor log_sums = session.head(row_max, batch_head);
  const Tensor sums = session.head(row_sum, batch_head);
  const float scale = KernelScale(session.programs().front().problem).magnitude;
  for (std::int64_t row = 0; row < sums.shape().rows; ++row) {
    log_sums.set(row, log_sum_exp(log_sums.get(row), scale, sums.get(row)));
  }
  return log_sums;
}

std::vector<double> PassRunner::clock_rates(std::size_t index) {
  prepare(index, state_->session.stream());
  return state_->session.clock_rates(index);
}

std::map<int, double> PassRunner::busy_cycles(std::size_t index) {
  prepare(index, state_->session.stream());
  return state_->session.busy_cycles(index);
}

bool PassRunner::has_step_clock() { return DeviceSession::has_step_clock(); }

StepTimes PassRunner::time_steps(std::size_t index, int most_notes) {
  prepare(index, state_->session.stream());
  return state_->session.time_steps(index, most_notes);
}

void PassRunner::check() {
  check_cuda(cudaDeviceSynchronize(), "running the passes");
  state_->session.check_guards();
}

}  // namespace tilescope
