// SPDX-License-Identifier: Apache-2.0
// Descales of fp8: what the stored elements of q, k and v are multiplied by to be the values of Q, K and V.
#pragma once

#include <cstdint>
#include <string>

#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope {

/// Where the descales of one tensor come from.
struct Descale {
  enum class From : std::uint8_t {
    constant,  // `value`
    random,    // from 1/2 to 2, by chance
    data,      // the largest magnitude of the values over the element type's largest number
    given,     // whoever fills the tensors says them
  };
  From from = From::constant;
  double value = 1.0;
  bool operator==(const Descale&) const = default;
};
/// "0.5", "random", "data" or "given".
std::string to_string(const Descale& descale);
/// The same read. @throws BadInput unless a constant lies in kLeastDescale ... kMostDescale
Descale parse_descale(const std::string& field, const std::string& text);

/// Kernels divide descales by each other and multiply them with scales: far from where fp32 ends.
inline constexpr double kLeastDescale = 1e-6, kMostDescale = 1e6;

/// One number a batch entry and key/value head, as in FlashAttention-3, or one a tile, as in its paper's
/// block quantization (arXiv:2407.08608, section 3.3).
struct Descales {
  Descale q = {}, k = {}, v = {};
  TileShape block = {0, 0};  // rows of q, and of k and v, that share a number; 0x0: all of their head
  bool by_block() const { return block != TileShape{0, 0}; }
  bool any() const { return *this != Descales{}; }
  bool operator==(const Descales&) const = default;
};

/// "descales q=0.5 k=random v=data of 128x128": those that are not 1.
std::string describe(const Descales& descales);

}  // namespace tilescope
