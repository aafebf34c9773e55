// SPDX-License-Identifier: Apache-2.0
// Every CPU kernel in every backward order, and how to run one on random inputs.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope::testing {

struct KernelCase {
  const Kernel* kernel;
  BackwardOrder backward;
  std::string name() const {
    std::string text(kernel->name);
    if (!kernel->backward_orders.empty()) text.append(" ").append(to_string(backward));
    return text;
  }
};

inline std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> cases;
  for (const Kernel& kernel : cpu_kernels()) {
    if (kernel.backward_orders.empty()) cases.push_back({&kernel, BackwardOrder::split});
    for (BackwardOrder order : kernel.backward_orders) cases.push_back({&kernel, order});
  }
  return cases;
}

/// Forward, and backward too where asked, on inputs that fill_random_inputs gave.
inline void run_kernel(const KernelCase& c, ProgramOptions options, Direction direction, TensorSet& tensors,
                       TileObserver* forward_observer = nullptr, TileObserver* backward_observer = nullptr) {
  options.backward = c.backward;
  c.kernel->run(options, Direction::forward, tensors, forward_observer);
  if (direction == Direction::backward) {
    c.kernel->run(options, Direction::backward, tensors, backward_observer);
  }
}

inline void copy_row(const Tensor& from, std::int64_t batch, std::int64_t head, std::int64_t row, Tensor& to,
                     std::int64_t to_batch, std::int64_t to_row) {
  std::memcpy(to.row(to_batch, head, to_row), from.row(batch, head, row),
              static_cast<std::size_t>(from.shape().cols * element_bytes(from.dtype())));
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

}  // namespace tilescope::testing
