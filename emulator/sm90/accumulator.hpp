// SPDX-License-Identifier: Apache-2.0
// Results of products under way. From the first product until a wait that covers the last, the registers
// hold a NaN that tells whose they are, so that an early use shows; the sums stand here.
//
// nvcc moves a result to another register before it is awaited, where the source does so later (a bit cast,
// for which no asm volatile is a barrier), and ptxas takes the two for one register. So do we: a register
// that was a copy of a result, and still is, gets the result too.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/machine/warp.hpp"

namespace tilescope::gpu::emulator {

inline constexpr int kWarpRows = 16;  // of a result

/// Registers by the register that they are copied from by a mov somewhere in a kernel: results of products,
/// and copies of copies.
struct ResultCopies {
  std::multimap<std::uint32_t, std::uint32_t> words;
  /// Registers that a mov takes apart: its lower and upper half.
  std::multimap<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> halves;
};
ResultCopies find_result_copies(const ptx::Kernel& kernel);

/// What a register of a result holds: one number (fp32, or a whole one), or two of fp16, which are fp32 here.
enum class ResultFormat : std::uint8_t { words, halves };

/// N columns of the warp's 16 rows.
struct Accumulator {
  ResultFormat format{};
  std::vector<std::uint32_t> registers;  // where they lie in the warp's
  std::vector<float> sums;               // row-major; bits of whole numbers
  std::uint32_t serial = 0;
  std::uint64_t last_group = 0;

  int numbers() const { return format == ResultFormat::halves ? 2 : 1; }  // of a register
  int cols() const { return 2 * numbers() * static_cast<int>(registers.size()); }
};

class Accumulators {
 public:
  /// The result of a product to come: taken from its registers, or under way already.
  /// @throws Fault where only some of the registers are under way, or one was written meanwhile
  std::shared_ptr<Accumulator> take(Warp& warp, const ptx::Operand& result, ResultFormat format,
                                    std::uint64_t group);
  /// Gives back those whose last group is below `done`.
  void give_back(Warp& warp, const ResultCopies& copies, std::uint64_t done);

 private:
  std::vector<std::shared_ptr<Accumulator>> under_way_;
  std::uint32_t serial_ = 0;
};

}  // namespace tilescope::gpu::emulator
