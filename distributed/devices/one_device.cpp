// SPDX-License-Identifier: Apache-2.0
#include "distributed/devices/one_device.hpp"

#include "distributed/devices/streams.hpp"
#include "gpu/launch/pass_runner.hpp"

namespace tilescope {

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
