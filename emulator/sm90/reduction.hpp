// SPDX-License-Identifier: Apache-2.0
// What asynchronous copies and stores do with numbers that are there already. Source: PTX ISA,
// "cp.reduce.async.bulk", "cp.reduce.async.bulk.tensor", "red.async".
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/ptx/module.hpp"
#include "emulator/sm90/tensor_map.hpp"

namespace tilescope::gpu::emulator {

enum class Reduction : std::uint8_t {
  none,  // what comes replaces what was there
  add,
  minimum,
  maximum,
  bit_and,
  bit_or,
  bit_xor,
  increment,
  decrement
};

/// The one that an instruction names. @throws std::runtime_error where it names none
Reduction reduction_of(const ptx::Instruction& instruction);

/// How tensor maps name the type of an instruction's numbers. @throws std::runtime_error for one that none
/// has
MapType number_type_of(const ptx::Instruction& instruction);

/// Element by element, of what is at the target and the source; sums are rounded to the nearest.
/// @throws Fault where numbers of this type are not reduced so
void reduce_elements(Reduction reduction, MapType type, void* target, const void* source, std::size_t bytes);

}  // namespace tilescope::gpu::emulator
