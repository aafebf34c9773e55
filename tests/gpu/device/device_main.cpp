// SPDX-License-Identifier: Apache-2.0
// The GPU kernels on a device, against their CPU mirrors: results, visited tiles and their state. Exits with
// 77 (skipped) where there is no device.
// Usage: test_gpu_device [doctest options] [--cases=N] [--seed=S] [--kernel=gpu:NAME] [--backward=ORDER]
//        [--head-dim=D]
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "gpu/registry/kernel_registry.hpp"
#include "tests/gpu/device/device_cases.hpp"

namespace tilescope {
namespace {

/// The value of "--name=value" among the arguments, or `otherwise`.
std::string argument(int argc, char** argv, const char* name, const std::string& otherwise) {
  for (int i = 1; i < argc; ++i) {
    const std::size_t length = std::strlen(name);
    if (std::strncmp(argv[i], name, length) == 0 && argv[i][length] == '=') return argv[i] + length + 1;
  }
  return otherwise;
}

}  // namespace
}  // namespace tilescope

int main(int argc, char** argv) {
  using namespace tilescope;
  testing::DeviceTestOptions& options = testing::device_options;
  if (const auto lack = device_lack()) {
    std::printf("skipped: %s\n", lack->c_str());
    return 77;
  }
  options.cases_per_kernel =
      std::stoi(argument(argc, argv, "--cases", std::to_string(options.cases_per_kernel)));
  options.first_seed =
      static_cast<unsigned>(std::stoul(argument(argc, argv, "--seed", std::to_string(options.first_seed))));
  options.only_kernel = argument(argc, argv, "--kernel", options.only_kernel);
  if (const std::string order = argument(argc, argv, "--backward", ""); !order.empty()) {
    options.only_backward = parse_backward_order(order);
  }
  if (const std::string head_dim = argument(argc, argv, "--head-dim", ""); !head_dim.empty()) {
    options.only_head_dim = std::stoll(head_dim);
  }
  doctest::Context context(argc, argv);
  return context.run();
}
