// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/happens_before.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "emulator/machine/shared_places.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint32_t kWordBytes = 4;
constexpr std::uint32_t kMaxAgents = 128;

/// Of an access, in a word: bytes are a bit each.
std::uint32_t first_byte(std::uint32_t word, std::uint8_t bytes) {
  return word * kWordBytes + static_cast<std::uint32_t>(std::countr_zero(bytes));
}

}  // namespace

HappensBefore::HappensBefore(std::uint32_t threads, std::uint32_t shared_end, const std::byte* shared,
                             const ptx::Kernel* kernel)
    : threads_(threads),
      shared_(shared),
      kernel_(kernel),
      clocks_(threads, Clocks(threads + kMaxAgents, 0)),
      words_((shared_end + kWordBytes - 1) / kWordBytes),
      written_(words_.size()) {
  for (std::uint32_t thread = 0; thread < threads; ++thread) clocks_[thread][thread] = 1;
}

void HappensBefore::merge(Clocks& into, const Clocks& from) const {
  if (into.empty()) into.resize(threads_ + kMaxAgents);
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void HappensBefore::read(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes, int line) {
  note({thread, clocks_[thread][thread], line, 0, false}, clocks_[thread], offset, bytes);
}
void HappensBefore::write(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes, int line) {
  note({thread, clocks_[thread][thread], line, 0, true}, clocks_[thread], offset, bytes);
}
void HappensBefore::read(std::uint32_t agent, Clock clock, const Clocks& issued, std::uint32_t offset,
                         std::uint32_t bytes, int line) {
  note({agent, clock, line, 0, false}, issued, offset, bytes);
}
void HappensBefore::write(std::uint32_t agent, Clock clock, const Clocks& issued, std::uint32_t offset,
                          std::uint32_t bytes, int line) {
  note({agent, clock, line, 0, true}, issued, offset, bytes);
}

void HappensBefore::join(std::span<const std::uint32_t> threads) {
  Clocks all;
  for (const std::uint32_t thread : threads) merge(all, clocks_[thread]);
  for (const std::uint32_t thread : threads) {
    clocks_[thread] = all;
    ++clocks_[thread][thread];
  }
}

void HappensBefore::arrive(Meeting meeting, std::uint32_t thread) {
  merge(arriving_[meeting], clocks_[thread]);
  ++clocks_[thread][thread];
}

void HappensBefore::arrive(Meeting meeting, std::uint32_t agent, Clock clock, const Clocks& issued) {
  Clocks& arriving = arriving_[meeting];
  merge(arriving, issued);
  arriving[agent] = std::max(arriving[agent], clock);
}

void HappensBefore::complete(Meeting meeting) {
  if (const auto arriving = arriving_.find(meeting); arriving != arriving_.end()) {
    merge(arrived_[meeting], arriving->second);
    arriving_.erase(arriving);
  }
}

void HappensBefore::acquire(Meeting meeting, std::uint32_t thread) {
  if (const auto arrived = arrived_.find(meeting); arrived != arrived_.end()) {
    merge(clocks_[thread], arrived->second);
  }
}

bool HappensBefore::has_agent(const std::string& name) const {
  return std::find(agents_.begin(), agents_.end(), name) != agents_.end();
}

std::uint32_t HappensBefore::agent(const std::string& name) {
  const auto found = std::find(agents_.begin(), agents_.end(), name);
  if (found != agents_.end()) return threads_ + static_cast<std::uint32_t>(found - agents_.begin());
  if (agents_.size() == kMaxAgents) throw std::runtime_error("too many agents of shared memory");
  agents_.push_back(name);
  return threads_ + static_cast<std::uint32_t>(agents_.size()) - 1;
}

HappensBefore::Clocks HappensBefore::issue(std::span<const std::uint32_t> threads) {
  Clocks known;
  for (const std::uint32_t thread : threads) {
    merge(known, clocks_[thread]);
    ++clocks_[thread][thread];  // what it does next is not before the operation
  }
  return known;
}

void HappensBefore::await(std::uint32_t thread, std::uint32_t agent, Clock clock) {
  clocks_[thread][agent] = std::max(clocks_[thread][agent], clock);
}

void HappensBefore::note(const Access& access, const Clocks& known, std::uint32_t offset,
                         std::uint32_t bytes) {
  for (std::uint32_t at = offset; at < offset + bytes;) {
    const std::uint32_t word = at / kWordBytes, end = std::min(offset + bytes, (word + 1) * kWordBytes);
    Access part = access;
    for (; at < end; ++at) part.bytes = static_cast<std::uint8_t>(part.bytes | 1u << at % kWordBytes);
    note_word(part, known, word);
  }
}

void HappensBefore::initialise(std::uint32_t offset, std::uint32_t bytes) {
  for (std::uint32_t at = offset; at < offset + bytes; ++at)
    written_[at / kWordBytes] = static_cast<std::uint8_t>(written_[at / kWordBytes] | 1u << at % kWordBytes);
}

void HappensBefore::note_unwritten(const Access& read, std::uint32_t word) {
  if (!reported_reads_.insert(read.line).second) return;
  unwritten_reads_.push_back({shared_place(kernel_, first_byte(word, read.bytes)) + ": " + name_of(read.who) +
                                  " reads at PTX line " + std::to_string(read.line) + " what nobody wrote",
                              read.line, read.line});
}

/// What is ordered before a write that covers it cannot race with anything that does not race with the write,
/// and is forgotten; so is a read before a later read that knows of it.
void HappensBefore::note_word(const Access& access, const Clocks& known, std::uint32_t word) {
  std::vector<Access>& accesses = words_[word];
  if (access.is_write) {
    written_[word] |= access.bytes;
  } else if ((access.bytes & ~written_[word]) != 0) {
    note_unwritten(access, word);
  }
  for (Access& earlier : accesses) {
    if ((earlier.bytes & access.bytes) == 0) continue;
    const bool ordered = earlier.clock <= known[earlier.who];
    const bool same = earlier.who == access.who && access.who < threads_;
    if (!ordered && !same && (earlier.is_write || access.is_write)) {
      const bool together = shared_ && earlier.is_write && access.is_write && earlier.line == access.line &&
                            earlier.who < threads_ && access.who < threads_;
      if (together) {
        suspects_.push_back({earlier, access, word, value_of(word)});
      } else {
        report(earlier, access, word);
      }
    }
    if (access.is_write || (!earlier.is_write && (ordered || same))) {
      earlier.bytes = static_cast<std::uint8_t>(earlier.bytes & ~access.bytes);
    }
  }
  std::erase_if(accesses, [](const Access& earlier) { return earlier.bytes == 0; });
  accesses.push_back(access);
}

std::uint32_t HappensBefore::value_of(std::uint32_t word) const {
  std::uint32_t value;
  std::memcpy(&value, shared_ + std::size_t{word} * kWordBytes, sizeof value);
  return value;
}

void HappensBefore::settle() {
  for (const Suspect& suspect : suspects_) {
    if (value_of(suspect.word) != suspect.before) report(suspect.first, suspect.second, suspect.word);
  }
  suspects_.clear();
}

void HappensBefore::report(const Access& first, const Access& second, std::uint32_t word) {
  if (!reported_.insert({first.line, second.line}).second) return;
  const auto words = [&](const Access& access) {
    return name_of(access.who) + (access.is_write ? " writes" : " reads") + " at PTX line " +
           std::to_string(access.line);
  };
  found_.push_back({shared_place(kernel_, first_byte(word, first.bytes & second.bytes)) + ": " +
                        words(first) + ", " + words(second) + ", and nothing orders the two",
                    first.line, second.line});
}

std::string HappensBefore::name_of(std::uint32_t who) const {
  return who < threads_ ? "thread " + std::to_string(who) : agents_[who - threads_];
}

}  // namespace tilescope::gpu::emulator
