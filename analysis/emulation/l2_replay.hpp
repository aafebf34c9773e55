// SPDX-License-Identifier: Apache-2.0
// What an L2 in two partitions fetches again, and writes back again, of a launch on the emulated device whose
// buffers it cannot keep: the sectors of its CTAs, as they asked for them, through the L2 of the replay.
//
// CTAs are in step: those that are there at once ask for a sector each in turn, and the next of the grid
// begins where one has ended. Of lines in the sampled sets alone anything is kept.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/model/replay/cache/line_sample.hpp"
#include "cpu_ref/schedule/tile_program.hpp"
#include "emulator/counts/l2_requests.hpp"

namespace tilescope {

class L2Replay : public gpu::emulator::L2Listener {
 public:
  struct Buffer {
    std::uint64_t address = 0, bytes = 0;
  };
  /// Buffers lie one behind the other on the device, in this order; they may be anywhere here.
  /// @param shape  of the L2; @param sms  of the chip
  L2Replay(const SplitL2Shape& shape, std::int64_t sms, const std::vector<Buffer>& buffers);

  void begin(std::uint64_t ctas_per_sm) override { ctas_per_sm_ = ctas_per_sm; }
  bool wants(std::uint64_t sector) const override { return line_of(sector) != kNone; }
  void add(std::uint32_t cta, std::uint64_t turns, std::vector<gpu::emulator::L2Request> requests) override;

  /// Bytes beyond the first read of each sector, and beyond its first write: the mean of several launches,
  /// which begin at different SMs.
  struct Again {
    double read_bytes = 0, written_bytes = 0;
  };
  Again again() const;

 private:
  using Number = LineSample::Number;
  static constexpr Number kNone = ~Number{0};
  static constexpr std::uint64_t kSectorBytes = 32, kSectorsPerLine = LineSample::kLineBytes / 32;
  struct Place {                // of a buffer
    std::uint64_t begin, end;   // lines
    std::vector<Number> lines;  // numbers of the sample, by line; kNone
  };
  struct Request {
    std::uint64_t turn;
    Number line;
    AccessKind kind;
  };
  struct Cta {
    std::uint64_t turns = 0;
    std::vector<Request> requests;
  };
  struct Event {
    std::uint64_t time;
    Number line;
    AccessKind kind;
    int partition;
  };
  Number line_of(std::uint64_t sector) const;
  std::vector<Event> events(std::size_t launch) const;
  Again replayed(std::size_t launch) const;

  SplitL2Shape shape_;
  std::int64_t sms_;
  LineSample sample_;
  std::vector<Place> places_;  // by address
  std::uint64_t ctas_per_sm_ = 1;
  std::map<std::uint32_t, Cta> ctas_;                         // in the grid's order
  std::vector<std::uint8_t> read_sectors_, written_sectors_;  // of each line, a bit each
};

}  // namespace tilescope
