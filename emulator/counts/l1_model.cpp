// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/l1_model.hpp"

#include <algorithm>
#include <array>

#include "emulator/machine/cta.hpp"

namespace tilescope::gpu::emulator {

bool L1Model::load(std::uint64_t sector) {
  const std::uint64_t number = sector / kSectorsPerLine;
  const auto bit = static_cast<std::uint8_t>(1u << sector % kSectorsPerLine);
  if (const auto found = by_number_.find(number); found != by_number_.end()) {
    lines_.splice(lines_.begin(), lines_, found->second);
    const bool there = (lines_.front().sectors & bit) != 0;
    lines_.front().sectors |= bit;
    return there;
  }
  if (most_lines_ == 0) return false;
  if (lines_.size() == most_lines_) {
    by_number_.erase(lines_.back().number);
    lines_.pop_back();
  }
  lines_.push_front({number, bit});
  by_number_[number] = lines_.begin();
  return false;
}

void FetchesOfSms::add(std::uint32_t sm, std::uint32_t cta, OfCta fetches) {
  if (!fetches.empty()) by_sm_[sm].emplace(cta, std::move(fetches));
}

std::vector<std::uint64_t> FetchesOfSms::hits(const Residency& residency, std::size_t sites) const {
  std::vector<std::uint64_t> hits(sites);
  for (const auto& [sm, ctas] : by_sm_) {
    L1Model l1(residency.l1_bytes);
    for (auto first = ctas.begin(); first != ctas.end();) {
      std::vector<const OfCta*> resident;
      std::size_t longest = 0;
      for (; first != ctas.end() && resident.size() < residency.ctas; ++first) {
        resident.push_back(&first->second);
        longest = std::max(longest, first->second.size());
      }
      for (std::size_t turn = 0; turn < longest; ++turn) {
        for (const OfCta* fetches : resident) {
          if (turn < fetches->size()) hits[(*fetches)[turn].site] += l1.load((*fetches)[turn].sector);
        }
      }
    }
  }
  return hits;
}

Residency residency_of(const Launch& launch, std::optional<int> registers) {
  constexpr std::uint64_t kKiB = 1024, kUnified = 256 * kKiB, kMostThreads = 2048, kMostCtas = 32,
                          kReserved = kKiB, kRegisters = 65536, kLanes = ptx::kLanes;
  constexpr std::array<std::uint64_t, 10> kSharedSizes = {0, 8, 16, 32, 64, 100, 132, 164, 196, 228};
  const std::uint64_t threads = launch.block.count();
  const std::uint64_t shared = launch.kernel->dynamic_shared_begin - ptx::kSharedBegin +
                               std::uint64_t{launch.dynamic_shared_bytes} + kReserved;
  Residency residency;
  residency.registers_known = registers.has_value();
  std::uint64_t ctas = std::min({kMostCtas, kMostThreads / threads, kSharedSizes.back() * kKiB / shared});
  if (registers) {
    const std::uint64_t a_warp = (static_cast<std::uint64_t>(*registers) * kLanes + 255) / 256 * 256;
    ctas = std::min(ctas, kRegisters / (a_warp * ((threads + kLanes - 1) / kLanes)));
  }
  const std::uint64_t given = (launch.grid.count() + kMultiprocessors - 1) / kMultiprocessors;
  residency.ctas = std::max<std::uint64_t>(1, std::min(ctas, given));
  const std::uint64_t used = std::max<std::uint64_t>(1, ctas) * (shared == kReserved ? 0 : shared);
  const auto size = std::ranges::find_if(kSharedSizes, [&](std::uint64_t kib) { return kib * kKiB >= used; });
  residency.l1_bytes = kUnified - (size == kSharedSizes.end() ? kSharedSizes.back() : *size) * kKiB;
  return residency;
}

}  // namespace tilescope::gpu::emulator
