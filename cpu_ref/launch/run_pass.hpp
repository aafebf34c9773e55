// SPDX-License-Identifier: Apache-2.0
// Runs the CTAs of a pass on all threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "cpu_ref/launch/cta.hpp"
#include "cpu_ref/launch/parallel_for_each.hpp"

namespace tilescope {

namespace detail {
/// Hands out the CTAs of a pass in increasing order, with their places in the queues of reductions.
class CtaDispenser {
 public:
  CtaDispenser(const TileProgram& program, TensorSet& tensors, TileObserver* observer);
  /// Puts the next CTA into `cta`. @return false when all are issued
  bool next(std::optional<Cta>& cta);

 private:
  const TileProgram* program_;
  TensorSet* tensors_;
  PassLog* log_ = nullptr;
  std::optional<OrderedTurns> turns_;  // when the program reduces
  std::mutex mutex_;
  std::int64_t issued_ = 0;
};
}  // namespace detail

/// Runs a pass: each thread builds its own Body(program, arguments...), which holds its tiles, and calls
/// body(cta) for the CTAs that it draws. The first exception of any thread is thrown again at the end.
template <typename Body, typename... Arguments>
void run_pass(const TileProgram& program, TensorSet& tensors, TileObserver* observer,
              const Arguments&... arguments) {
  detail::CtaDispenser dispenser(program, tensors, observer);
  FirstException failure;
  const int threads = static_cast<int>(std::min<std::int64_t>(omp_get_max_threads(), program.num_ctas()));
#pragma omp parallel num_threads(threads)
  failure.guard([&] {
    Body body(program, arguments...);
    for (std::optional<Cta> cta; dispenser.next(cta);) body(*cta);
  });
  failure.rethrow();
}

}  // namespace tilescope
