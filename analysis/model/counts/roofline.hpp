// SPDX-License-Identifier: Apache-2.0
// The hierarchical roofline as data: what a kernel does, the ceilings of a machine, and which of them the
// kernel meets first. Every ceiling is a rate; a kernel's least time under it is its amount over that rate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/model/machine/machine.hpp"

namespace tilescope {

enum class CeilingKind : std::uint8_t { peak, sm_l2, dram, exponentials, link };

/// What a kernel does, by whatever convention its caller states.
struct KernelWork {
  std::int64_t flops = 0;
  std::optional<std::int64_t> sm_l2_bytes, dram_bytes;  // reads and writes together; absent where not known
  std::int64_t exponentials = 0;                        // of the softmax
  std::optional<std::int64_t> link_bytes = {};          // sent to other GPUs

  /// FLOP, bytes or exponentials; nothing where not known.
  std::optional<double> amount(CeilingKind kind) const;
};

struct Ceiling {
  CeilingKind kind = CeilingKind::peak;
  std::string name;        // "fp16 peak", "SM<->L2 bandwidth", "DRAM bandwidth", "exponentials"
  double per_second = 0;   // FLOP, bytes or exponentials
  bool measured = false;   // otherwise from a datasheet, or derived
  bool documented = true;  // false for a figure that is assumed, unverified or a default
  std::string evidence;    // the kind of its source: "datasheet", "assumed"
};

/// The ceilings that `machine` has for inputs of `dtype`, in the order of CeilingKind.
std::vector<Ceiling> ceilings_of(const Machine& machine, ElementType dtype);

/// The ceiling of the link to other GPUs, one direction, which a run on one GPU has no use for; nothing where
/// the machine has no link.
std::optional<Ceiling> link_ceiling(const Machine& machine);

/// The ceiling of that kind; null if there is none.
const Ceiling* find(const std::vector<Ceiling>& ceilings, CeilingKind kind);

/// The best documented ceiling of each kind: the measured one, or the stated one where none was measured.
std::vector<Ceiling> best_documented(const std::vector<Ceiling>& stated,
                                     const std::vector<Ceiling>& measured);

/// What a kernel can reach: min over the ceilings (Williams, Waterman, Patterson 2009; one intensity a memory
/// boundary: Yang, Kurth, Williams; exponentials as a ceiling of their own: after Ding and Williams).
struct Roofline {
  std::optional<double> least_seconds;  // absent when no ceiling bounds the kernel
  std::string limit;                    // name of the ceiling that does; "" then
  /// flops over least_seconds.
  std::optional<double> attainable_flops_per_second;
};

Roofline roofline(const KernelWork& work, const std::vector<Ceiling>& ceilings);

/// Share of a ceiling that a kernel reaches when it takes `seconds`, 1.0 = 100 %; nothing where it has no
/// such work, or none that is known.
std::optional<double> share_of(const Ceiling& ceiling, const KernelWork& work, double seconds);

}  // namespace tilescope
