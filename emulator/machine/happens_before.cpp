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
constexpr std::uint32_t kMaxAgents = 128;  // of a CTA

/// Of an access, in a word: bytes are a bit each.
std::uint32_t first_byte(std::uint32_t word, std::uint8_t bytes) {
  return word * kWordBytes + static_cast<std::uint32_t>(std::countr_zero(bytes));
}

}  // namespace

HappensBefore::HappensBefore(std::uint32_t threads, std::uint32_t shared_end, const ptx::Kernel* kernel,
                             std::uint32_t ctas)
    : ctas_(ctas),
      threads_(threads * ctas),
      agents_end_(threads_ + kMaxAgents * ctas),
      cta_bytes_((shared_end + kWordBytes - 1) / kWordBytes * kWordBytes),
      shared_(ctas),
      kernel_(kernel),
      clocks_(threads_, Clocks(agents_end_, 0)),
      words_(std::size_t{cta_bytes_} / kWordBytes * ctas),
      written_(words_.size()) {
  for (std::uint32_t thread = 0; thread < threads_; ++thread) clocks_[thread][thread] = 1;
}

void HappensBefore::merge(Clocks& into, const Clocks& from) const {
  if (into.empty()) into.resize(agents_end_);
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

void HappensBefore::fence(std::uint32_t thread) {
  fenced_[thread] = clocks_[thread];
  ++clocks_[thread][thread];  // what it does next is not before the fence
}

void HappensBefore::arrive_relaxed(Meeting meeting, std::uint32_t thread) {
  if (const auto fenced = fenced_.find(thread); fenced != fenced_.end())
    merge(arriving_[meeting], fenced->second);
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
  return std::ranges::find(agents_, name) != agents_.end();
}

std::uint32_t HappensBefore::agent(const std::string& name) {
  const auto found = std::ranges::find(agents_, name);
  if (found != agents_.end()) return threads_ + static_cast<std::uint32_t>(found - agents_.begin());
  if (threads_ + agents_.size() == agents_end_) throw std::runtime_error("too many agents of shared memory");
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
  unwritten_reads_.push_back({place_of(first_byte(word, read.bytes)) + ": " + name_of(read.who) +
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
      const bool together = shared_[word * kWordBytes / cta_bytes_] && earlier.is_write && access.is_write &&
                            earlier.line == access.line && earlier.who < threads_ && access.who < threads_;
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
  const std::uint32_t byte = word * kWordBytes;
  std::uint32_t value;
  std::memcpy(&value, shared_[byte / cta_bytes_] + byte % cta_bytes_, sizeof value);
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
  found_.push_back({place_of(first_byte(word, first.bytes & second.bytes)) + ": " + words(first) + ", " +
                        words(second) + ", and nothing orders the two",
                    first.line, second.line});
}

void HappensBefore::reach(std::uint32_t thread, std::uint32_t rank, int line) {
  reached_[{thread, rank}] = {clocks_[thread][thread], line};
}

void HappensBefore::end() {
  settle();
  for (const auto& [who_and_rank, reached] : reached_) {
    const auto& [who, rank] = who_and_rank;
    const Clocks* const begin = &clocks_[std::size_t{rank} * threads_of_cta()];
    const bool is_known = std::any_of(
        begin, begin + threads_of_cta(),
        [&, thread = who, last = reached.clock](const Clocks& clocks) { return clocks[thread] >= last; });
    if (is_known || !reported_.insert({reached.line, 0}).second) continue;
    found_.push_back({name_of(who) + " reaches at PTX line " + std::to_string(reached.line) +
                          " into the shared memory" + of_cta(rank) +
                          ", which may have ended by then: no thread of it waits for that",
                      reached.line, reached.line});
  }
  reached_.clear();
}

std::string HappensBefore::of_cta(std::uint32_t rank) const {
  return ctas_ == 1 ? "" : " of CTA " + std::to_string(rank) + " of the cluster";
}

std::string HappensBefore::place_of(std::uint32_t byte) const {
  return shared_place(kernel_, byte % cta_bytes_) + of_cta(byte / cta_bytes_);
}

std::string HappensBefore::name_of(std::uint32_t who) const {
  if (who >= threads_) return agents_[who - threads_];
  return "thread " + std::to_string(who % threads_of_cta()) + of_cta(who / threads_of_cta());
}

}  // namespace tilescope::gpu::emulator
