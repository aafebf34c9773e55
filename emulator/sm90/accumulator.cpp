// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/accumulator.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include "cpu_ref/numeric/numeric.hpp"
#include "gpu/primitives/sm90/fragments.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// The NaN in register `index` of a result under way.
std::uint32_t mark(const Accumulator& accumulator, std::size_t index) {
  return 0x7FC00000u | (accumulator.serial & 0x7FFF) << 7 | static_cast<std::uint32_t>(index);
}

ptx::Operand register_at(std::uint32_t offset) {
  ptx::Operand operand;
  operand.kind = ptx::Operand::Kind::reg;
  operand.bytes = 4;
  operand.offset = offset;
  return operand;
}

bool holds(const Warp& warp, std::uint32_t offset, std::uint32_t value) {
  const std::uint32_t* values = warp.read<std::uint32_t>(register_at(offset));
  return std::all_of(values, values + ptx::kLanes, [value](std::uint32_t x) { return x == value; });
}

void check_untouched(const Warp& warp, const Accumulator& accumulator) {
  for (std::size_t index = 0; index < accumulator.registers.size(); ++index) {
    if (!holds(warp, accumulator.registers[index], mark(accumulator, index))) {
      throw Fault("a register of products under way was written");
    }
  }
}

/// @param index  of a number: register times numbers a register, and the number in it
float& sum_of(Accumulator& accumulator, int lane, std::size_t index) {
  const sm90::Entry entry = sm90::accumulator_entry(lane, static_cast<int>(index));
  return accumulator.sums[static_cast<std::size_t>(entry.row * accumulator.cols() + entry.col)];
}

void read_register(Accumulator& accumulator, int lane, std::size_t index, std::uint32_t bits) {
  if (accumulator.format == ResultFormat::words) {
    sum_of(accumulator, lane, index) = std::bit_cast<float>(bits);
    return;
  }
  for (std::size_t half = 0; half < 2; ++half)
    sum_of(accumulator, lane, 2 * index + half) =
        fp16_to_fp32(static_cast<std::uint16_t>(bits >> (16 * half)));
}
std::uint32_t register_bits(Accumulator& accumulator, int lane, std::size_t index) {
  if (accumulator.format == ResultFormat::words)
    return std::bit_cast<std::uint32_t>(sum_of(accumulator, lane, index));
  const auto half = [&](std::size_t i) { return std::uint32_t{fp32_to_fp16(sum_of(accumulator, lane, i))}; };
  return half(2 * index + 1) << 16 | half(2 * index);
}

/// Gives both halves of a result to the registers that still hold those of its mark.
void give_halves(Warp& warp, const std::pair<std::uint32_t, std::uint32_t>& halves, std::uint32_t mark,
                 const std::uint32_t* values) {
  int shift = 0;
  for (const std::uint32_t offset : {halves.first, halves.second}) {
    auto* const lanes = warp.write<std::uint16_t>(register_at(offset));
    for (int lane = 0; lane < ptx::kLanes; ++lane) {
      if (lanes[lane] == static_cast<std::uint16_t>(mark >> shift))
        lanes[lane] = static_cast<std::uint16_t>(values[lane] >> shift);
    }
    shift += 16;
  }
}

}  // namespace

ResultCopies find_result_copies(const ptx::Kernel& kernel) {
  std::set<std::uint32_t> results;
  for (const ptx::Instruction& instruction : kernel.instructions) {
    if (!instruction.opcode.starts_with("wgmma.mma_async")) continue;
    for (const ptx::Operand& element : instruction.operands[0].elements) results.insert(element.offset);
  }
  ResultCopies copies;
  for (std::size_t known = results.size() + 1; known != results.size();) {
    known = results.size();
    copies = {};
    for (const ptx::Instruction& instruction : kernel.instructions) {
      if (!instruction.opcode.starts_with("mov.") || instruction.operands.size() != 2) continue;
      const ptx::Operand &target = instruction.operands[0], &source = instruction.operands[1];
      if (target.kind == ptx::Operand::Kind::vector && target.elements.size() == 2 &&
          source.kind == ptx::Operand::Kind::reg && source.bytes == 4 && results.contains(source.offset) &&
          std::ranges::all_of(target.elements, [](const ptx::Operand& half) {
            return half.kind == ptx::Operand::Kind::reg && half.bytes == 2;
          }))
        copies.halves.emplace(source.offset, std::pair(target.elements[0].offset, target.elements[1].offset));
      if (target.kind != ptx::Operand::Kind::reg || source.kind != ptx::Operand::Kind::reg) continue;
      if (source.bytes != 4 || target.bytes != 4 || !results.contains(source.offset)) continue;
      copies.words.emplace(source.offset, target.offset);
      results.insert(target.offset);
    }
  }
  return copies;
}

std::shared_ptr<Accumulator> Accumulators::take(Warp& warp, const ptx::Operand& result, ResultFormat format,
                                                std::uint64_t group) {
  std::vector<std::uint32_t> registers;
  for (const ptx::Operand& element : result.elements) registers.push_back(element.offset);
  for (const auto& accumulator : under_way_) {
    if (accumulator->registers == registers) {
      check_untouched(warp, *accumulator);
      accumulator->last_group = group;
      return accumulator;
    }
    if (std::find_first_of(accumulator->registers.begin(), accumulator->registers.end(), registers.begin(),
                           registers.end()) != accumulator->registers.end()) {
      throw Fault("products under way have some of the registers of this result, and others");
    }
  }
  auto accumulator = std::make_shared<Accumulator>();
  accumulator->format = format;
  accumulator->registers = std::move(registers);
  accumulator->serial = ++serial_;
  accumulator->last_group = group;
  accumulator->sums.resize(static_cast<std::size_t>(kWarpRows * accumulator->cols()));
  for (std::size_t index = 0; index < accumulator->registers.size(); ++index) {
    auto* values = warp.write<std::uint32_t>(result.elements[index]);
    for (int lane = 0; lane < ptx::kLanes; ++lane) {
      read_register(*accumulator, lane, index, values[lane]);
      values[lane] = mark(*accumulator, index);
    }
  }
  under_way_.push_back(accumulator);
  return accumulator;
}

void Accumulators::give_back(Warp& warp, const ResultCopies& copies, std::uint64_t done) {
  std::erase_if(under_way_, [&](const std::shared_ptr<Accumulator>& accumulator) {
    if (accumulator->last_group >= done) return false;
    check_untouched(warp, *accumulator);
    for (std::size_t index = 0; index < accumulator->registers.size(); ++index) {
      std::vector<std::uint32_t> targets{accumulator->registers[index]};
      for (std::size_t next = 0; next < targets.size(); ++next) {
        const auto [first, last] = copies.words.equal_range(targets[next]);
        for (auto copy = first; copy != last; ++copy) {
          if (std::ranges::find(targets, copy->second) == targets.end() &&
              holds(warp, copy->second, mark(*accumulator, index))) {
            targets.push_back(copy->second);
          }
        }
      }
      for (const std::uint32_t target : targets) {
        auto* values = warp.write<std::uint32_t>(register_at(target));
        for (int lane = 0; lane < ptx::kLanes; ++lane)
          values[lane] = register_bits(*accumulator, lane, index);
        const auto [first, last] = copies.halves.equal_range(target);
        for (auto copy = first; copy != last; ++copy)
          give_halves(warp, copy->second, mark(*accumulator, index), values);
      }
    }
    return true;
  });
}

}  // namespace tilescope::gpu::emulator
