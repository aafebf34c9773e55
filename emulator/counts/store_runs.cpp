// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/store_runs.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "emulator/counts/sass_lines.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// Instructions between two stores of a row: with four or more of arithmetic, those of an H200 arrived apart.
constexpr unsigned kMostInstructionsBetween = 3;
constexpr std::int64_t kNearBytes = 32;

/// A register and a displacement: "R2.64+0x800" of "desc[UR6][R2.64+0x800]".
struct Place {
  int base = -1;
  std::int64_t displacement = 0;
  bool is_near(const Place& other) const {
    return base == other.base && std::abs(displacement - other.displacement) < kNearBytes;
  }
};

int number_at(std::string_view text, int base = 10) {
  int number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number, base);
  return number;
}

/// Nothing where the address is no register of threads.
std::optional<Place> place_of(std::string_view operands) {
  const std::size_t end = operands.rfind(']');
  const std::size_t begin = operands.rfind('[', end);
  if (end == std::string_view::npos || begin == std::string_view::npos) return std::nullopt;
  const std::string_view inside = operands.substr(begin + 1, end - begin - 1);
  if (!inside.starts_with('R')) return std::nullopt;
  Place place{.base = number_at(inside.substr(1))};
  if (const std::size_t sign = inside.find("0x"); sign != std::string_view::npos && sign > 0)
    place.displacement = (inside[sign - 1] == '-' ? -1 : 1) * number_at(inside.substr(sign + 2), 16);
  return place.base < 0 ? std::nullopt : std::optional(place);
}

/// The register that an instruction writes first, or -1.
int written_by(std::string_view operands) {
  for (std::size_t at = 0; at + 1 < operands.size() && operands[at] != '['; ++at) {
    const bool begins = at == 0 || operands[at - 1] == ' ';
    if (begins && operands[at] == 'R' && operands[at + 1] >= '0' && operands[at + 1] <= '9')
      return number_at(operands.substr(at + 1));
  }
  return -1;
}

bool ends_block(std::string_view opcode) {
  constexpr std::array<std::string_view, 9> kEnds = {"BRA", "BRX", "BSYNC",    "BAR",   "CALL",
                                                     "JMP", "RET", "WARPSYNC", "MEMBAR"};
  return std::ranges::find(kEnds, opcode) != kEnds.end();
}

/// The stores of a block so far.
class Block {
 public:
  explicit Block(StoreRuns& runs) : runs_(&runs) {}

  void store(const Place& place) {
    if (since_store_ > kMostInstructionsBetween) ++run_;
    since_store_ = 0;
    std::set<std::pair<int, std::int64_t>> between;  // other places
    for (auto before = stores_.rbegin(); before != stores_.rend(); ++before) {
      if (!before->place.is_near(place)) {
        between.emplace(before->place.base, before->place.displacement / kNearBytes);
        continue;
      }
      ++runs_->meeting;
      if (before->run == run_ && between.size() < StoreRuns::kMostBetween) ++runs_->in_a_row[between.size()];
      break;
    }
    stores_.push_back({place, run_});
  }
  /// Any other instruction. @param written  the register that it writes, or -1
  void other(int written) {
    ++since_store_;
    if (written < 0) return;
    std::erase_if(stores_, [&](const Store& store) {
      return store.place.base == written || store.place.base + 1 == written ||
             store.place.base == written + 1;
    });
  }

 private:
  struct Store {
    Place place;
    unsigned run;
  };
  StoreRuns* runs_;
  std::vector<Store> stores_;
  unsigned run_ = 0, since_store_ = 0;
};

}  // namespace

double StoreRuns::share(double lines) const {
  if (meeting == 0) return 1;
  unsigned stores = 0;
  for (unsigned between = 0; between < kMostBetween; ++between)
    stores += between == 0 || (between + 1) * lines < kOpenLines ? in_a_row[between] : 0;
  return static_cast<double>(stores) / meeting;
}

std::optional<StoreRuns> store_runs_in_sass(std::string_view sass, std::string_view kernel) {
  StoreRuns runs;
  std::optional<Block> block;
  const bool is_there = for_sass_lines(sass, kernel, [&](const SassLine& line) {
    if (!block) block.emplace(runs);
    const auto place = line.opcode == "STG" ? place_of(line.operands) : std::nullopt;
    if (place) return block->store(*place);
    if (ends_block(line.opcode)) return block.reset();
    block->other(written_by(line.operands));
  });
  return is_there ? std::optional(runs) : std::nullopt;
}

}  // namespace tilescope::gpu::emulator
