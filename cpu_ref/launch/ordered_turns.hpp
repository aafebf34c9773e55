// SPDX-License-Identifier: Apache-2.0
// Sums into shared tiles in one fixed order, so that a reduction gives the same bits for every thread count.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace tilescope {

/// A queue before each tile that several CTAs add to. CTAs draw a ticket for each tile they will add to when
/// they are issued, which happens in increasing order and one at a time; they add in the order of tickets.
/// The earliest CTA in flight never waits, so that the queue always moves.
class OrderedTurns {
 public:
  explicit OrderedTurns(std::int64_t num_tiles)
      : issued_(static_cast<std::size_t>(num_tiles), 0),
        serving_(std::make_unique<std::atomic<std::uint32_t>[]>(static_cast<std::size_t>(num_tiles))) {}

  /// Draws the next ticket of a tile. Calls must not overlap.
  std::uint32_t draw(std::int64_t tile) { return issued_[static_cast<std::size_t>(tile)]++; }
  /// Returns when every earlier ticket of the tile is done.
  void wait(std::int64_t tile, std::uint32_t ticket) {
    std::atomic<std::uint32_t>& serving = serving_[static_cast<std::size_t>(tile)];
    for (std::uint32_t now = serving.load(std::memory_order_acquire); now != ticket;
         now = serving.load(std::memory_order_acquire)) {
      serving.wait(now, std::memory_order_acquire);
    }
  }
  void done(std::int64_t tile, std::uint32_t ticket) {
    std::atomic<std::uint32_t>& serving = serving_[static_cast<std::size_t>(tile)];
    // In one order with what notify_all() reads first, whether anybody waits: behind a mere release that
    // could be read before others see the ticket, and who then begins to wait would never be woken.
    serving.store(ticket + 1, std::memory_order_seq_cst);
    serving.notify_all();
  }

 private:
  std::vector<std::uint32_t> issued_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> serving_;
};

/// The tickets of one CTA. Those it did not use, because it failed, are passed on when it ends.
class TurnTickets {
 public:
  TurnTickets() = default;
  TurnTickets(const TurnTickets&) = delete;
  TurnTickets& operator=(const TurnTickets&) = delete;
  ~TurnTickets() {
    for (; next_ < tickets_.size(); ++next_) pass(tickets_[next_]);
  }

  /// Draws tickets for `tiles`, in the order in which the CTA will take them.
  void draw(OrderedTurns& turns, const std::vector<std::int64_t>& tiles) {
    turns_ = &turns;
    tickets_.reserve(tiles.size());
    for (std::int64_t tile : tiles) tickets_.push_back({tile, turns.draw(tile)});
  }
  /// Calls add(whether nobody has added before) in this CTA's turn at the next of its tiles.
  template <typename Add>
  void take(Add&& add) {
    const Ticket ticket = tickets_[next_];
    turns_->wait(ticket.tile, ticket.number);
    add(ticket.number == 0);
    turns_->done(ticket.tile, ticket.number);
    ++next_;
  }

 private:
  struct Ticket {
    std::int64_t tile;
    std::uint32_t number;
  };
  void pass(const Ticket& ticket) {
    turns_->wait(ticket.tile, ticket.number);
    turns_->done(ticket.tile, ticket.number);
  }
  OrderedTurns* turns_ = nullptr;
  std::vector<Ticket> tickets_;
  std::size_t next_ = 0;
};

}  // namespace tilescope
