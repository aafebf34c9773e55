// SPDX-License-Identifier: Apache-2.0
// Where races are looked for: what a CTA tells of its threads and its shared memory, by its own numbers, to
// the account that its cluster shares.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "emulator/machine/happens_before.hpp"

namespace tilescope::gpu::emulator {

/// The most threads of a cluster that an account is kept of: their clocks take 32 MB.
inline constexpr std::uint64_t kMostOrderedThreads = 2048;

class CtaOrder {
 public:
  using Clock = HappensBefore::Clock;
  using Clocks = HappensBefore::Clocks;
  using Meeting = HappensBefore::Meeting;

  CtaOrder(std::shared_ptr<HappensBefore> account, std::uint32_t rank)
      : account_(std::move(account)), rank_(rank) {}

  HappensBefore& account() { return *account_; }
  std::uint32_t in_cluster(std::uint32_t thread) const { return rank_ * account_->threads_of_cta() + thread; }

  /// Accesses to this CTA's memory by a thread of any, which is named by its number in the cluster.
  void read_by(std::uint32_t who, std::uint32_t offset, std::uint32_t bytes, int line) {
    reached_by(who, line);
    account_->read(who, place(offset), bytes, line);
  }
  void write_by(std::uint32_t who, std::uint32_t offset, std::uint32_t bytes, int line) {
    reached_by(who, line);
    account_->write(who, place(offset), bytes, line);
  }
  void update_by(std::uint32_t who, std::uint32_t offset, std::uint32_t bytes, int line) {
    reached_by(who, line);
    initialise(offset, bytes);
  }
  void arrive_by(Meeting meeting, std::uint32_t who) { account_->arrive(here(meeting), who); }

  /// As HappensBefore has them, of this CTA's threads, memory and meetings.
  void join(std::span<const std::uint32_t> threads) { account_->join(all_in_cluster(threads)); }
  void arrive(Meeting meeting, std::uint32_t thread) { account_->arrive(here(meeting), in_cluster(thread)); }
  void arrive(Meeting meeting, std::uint32_t agent, Clock clock, const Clocks& issued) {
    account_->arrive(here(meeting), agent, clock, issued);
  }
  void complete(Meeting meeting) { account_->complete(here(meeting)); }
  void acquire(Meeting meeting, std::uint32_t thread) {
    account_->acquire(here(meeting), in_cluster(thread));
  }
  std::uint32_t agent(const std::string& name) { return account_->agent(name_here(name)); }
  bool has_agent(const std::string& name) const { return account_->has_agent(name_here(name)); }
  Clocks issue(std::span<const std::uint32_t> threads) { return account_->issue(all_in_cluster(threads)); }
  void read(std::uint32_t agent, Clock clock, const Clocks& issued, std::uint32_t offset, std::uint32_t bytes,
            int line) {
    account_->read(agent, clock, issued, place(offset), bytes, line);
  }
  void write(std::uint32_t agent, Clock clock, const Clocks& issued, std::uint32_t offset,
             std::uint32_t bytes, int line) {
    account_->write(agent, clock, issued, place(offset), bytes, line);
  }
  void await(std::uint32_t thread, std::uint32_t agent, Clock clock) {
    account_->await(in_cluster(thread), agent, clock);
  }
  void initialise(std::uint32_t offset, std::uint32_t bytes) { account_->initialise(place(offset), bytes); }

 private:
  std::uint32_t place(std::uint32_t offset) const { return rank_ * account_->bytes_of_cta() + offset; }
  Meeting here(Meeting meeting) const { return meeting | Meeting{rank_} << 40; }
  std::string name_here(const std::string& name) const { return name + account_->of_cta(rank_); }
  std::vector<std::uint32_t> all_in_cluster(std::span<const std::uint32_t> threads) const {
    std::vector<std::uint32_t> all(threads.begin(), threads.end());
    for (std::uint32_t& thread : all) thread = in_cluster(thread);
    return all;
  }
  void reached_by(std::uint32_t who, int line) {
    if (who / account_->threads_of_cta() != rank_) account_->reach(who, rank_, line);
  }

  std::shared_ptr<HappensBefore> account_;
  std::uint32_t rank_;
};

}  // namespace tilescope::gpu::emulator
