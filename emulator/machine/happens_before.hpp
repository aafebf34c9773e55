// SPDX-License-Identifier: Apache-2.0
// Races in the shared memory of a cluster's CTAs, by happens-before: two accesses to a byte, one of them a
// write, between which the PTX memory model has no order. Every thread has a vector clock; so has every agent
// that reads or writes on its own (the copies that an mbarrier counts, the products of a warp, the stores of
// a thread). What a run shows is judged by its order, not by its times: a race is found whether or not it did
// harm. Threads are numbered through the cluster, and so are bytes; cta_order.hpp has a CTA's own numbers.
//
// Orders: bar.warp.sync, bar.sync and bar.red join their threads; an arrival (bar.arrive, mbarrier.arrive,
// barrier.cluster.arrive) releases, a wait that succeeds acquires what arrived in the phases that are over. A
// relaxed arrival releases what a fence of the thread stood behind.
// Source: PTX ISA, "Memory Consistency Model"; the representation: FastTrack (PLDI 2009), kept simple.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "emulator/machine/launch.hpp"

namespace tilescope::gpu::emulator {

class HappensBefore {
 public:
  using Clock = std::uint32_t;
  using Clocks = std::vector<Clock>;  // by thread, then by agent
  // a named barrier's number, kMbarrier + its address, or the cluster's barrier
  using Meeting = std::uint64_t;
  static constexpr Meeting kMbarrier = 1ull << 32, kCluster = 1ull << 33;

  /// @param threads, shared_end  of a CTA, of which there are `ctas`
  /// @param kernel  whose variables are named
  HappensBefore(std::uint32_t threads, std::uint32_t shared_end, const ptx::Kernel* kernel = nullptr,
                std::uint32_t ctas = 1);

  std::uint32_t threads_of_cta() const { return threads_ / ctas_; }
  std::uint32_t bytes_of_cta() const { return cta_bytes_; }
  /// " of CTA 1 of the cluster"; nothing where there is one.
  std::string of_cta(std::uint32_t rank) const;
  /// A CTA's memory, by offset, whose bytes tell whether a store changed anything.
  void watch(std::uint32_t rank, const std::byte* shared) { shared_.at(rank) = shared; }

  /// The stores that were told of so far are done: those of one instruction by several warps that left every
  /// byte as it was wrote one value together, which is no race.
  void settle();

  /// Accesses by a thread; the line is that of the PTX text.
  void read(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes, int line);
  void write(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes, int line);

  void join(std::span<const std::uint32_t> threads);
  void arrive(Meeting meeting, std::uint32_t thread);
  void arrive_relaxed(Meeting meeting, std::uint32_t thread);
  void fence(std::uint32_t thread);
  void complete(Meeting meeting);  // a phase is over
  void acquire(Meeting meeting, std::uint32_t thread);

  /// An agent by its name in messages; made when first asked for.
  std::uint32_t agent(const std::string& name);
  bool has_agent(const std::string& name) const;
  /// What an operation issued by these threads may rely on: all that happened before its issue.
  Clocks issue(std::span<const std::uint32_t> threads);
  /// Accesses by an agent, at its `clock`, of an operation issued so.
  void read(std::uint32_t agent, Clock clock, const Clocks& issued, std::uint32_t offset, std::uint32_t bytes,
            int line);
  void write(std::uint32_t agent, Clock clock, const Clocks& issued, std::uint32_t offset,
             std::uint32_t bytes, int line);
  /// The thread knows the agent's operations up to `clock` to be done.
  void await(std::uint32_t thread, std::uint32_t agent, Clock clock);
  /// The agent's operations up to `clock`, and what it was issued upon, count as arrived.
  void arrive(Meeting meeting, std::uint32_t agent, Clock clock, const Clocks& issued);

  /// What was written by means that have no part in the search (atomics).
  void initialise(std::uint32_t offset, std::uint32_t bytes);

  /// A thread reaches into the shared memory of another CTA, which must not end before.
  void reach(std::uint32_t thread, std::uint32_t rank, int line);
  /// All CTAs have ended: what was not ordered before the end of the CTA that it reached into is a race.
  void end();

  /// One a pair of places.
  const std::vector<Race>& races() const { return found_; }
  /// Reads of what nobody wrote, one a place.
  const std::vector<Race>& unwritten_reads() const { return unwritten_reads_; }

 private:
  struct Access {
    std::uint32_t who;  // thread or agent
    Clock clock;
    int line;
    std::uint8_t bytes;  // of the word, a bit each
    bool is_write;
  };
  struct Suspect {
    Access first, second;
    std::uint32_t word, before;
  };
  struct Reached {
    Clock clock = 0;
    int line = 0;
  };
  std::uint32_t value_of(std::uint32_t word) const;
  void note(const Access& access, const Clocks& known, std::uint32_t offset, std::uint32_t bytes);
  void note_word(const Access& access, const Clocks& known, std::uint32_t word);
  void report(const Access& first, const Access& second, std::uint32_t word);
  void note_unwritten(const Access& read, std::uint32_t word);
  std::string name_of(std::uint32_t who) const;
  void merge(Clocks& into, const Clocks& from) const;

  std::string place_of(std::uint32_t byte) const;

  std::uint32_t ctas_, threads_, agents_end_, cta_bytes_;
  std::vector<const std::byte*> shared_;  // by rank
  const ptx::Kernel* kernel_;
  std::vector<Suspect> suspects_;
  std::vector<Clocks> clocks_;                                          // of threads
  std::map<std::uint32_t, Clocks> fenced_;                              // at a thread's last fence
  std::map<std::pair<std::uint32_t, std::uint32_t>, Reached> reached_;  // the last time, by thread and rank
  std::vector<std::string> agents_;
  std::map<Meeting, Clocks> arriving_, arrived_;
  std::vector<std::vector<Access>> words_;  // what later accesses may race with
  std::vector<std::uint8_t> written_;       // by word, a bit a byte
  std::set<std::pair<int, int>> reported_;
  std::set<int> reported_reads_;
  std::vector<Race> found_, unwritten_reads_;
};

}  // namespace tilescope::gpu::emulator
