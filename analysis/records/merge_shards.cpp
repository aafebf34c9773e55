// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/merge_shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "common/errors.hpp"

namespace tilescope {
namespace {

struct Place {
  std::size_t index = 0, parts = 0;
};

Place place_of(const std::string& source, const RunRecord& record) {
  if (!record.shard) throw BadInput("PART", source, "must be made with --shard I/N");
  const char* const end = record.shard->data() + record.shard->size();
  Place place;
  const auto [slash, bad_index] = std::from_chars(record.shard->data(), end, place.index);
  if (bad_index == std::errc() && slash != end && *slash == '/') std::from_chars(slash + 1, end, place.parts);
  if (place.index >= place.parts) throw BadInput("shard", *record.shard, "must be I/N in " + source);
  return place;
}

/// Without what differs between the parts: --shard and where the record went.
std::vector<std::string> whole_command(const std::vector<std::string>& argv) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < argv.size(); ++i) {
    if (argv[i] == "--shard" || argv[i] == "--json")
      ++i;  // its value goes too
    else if (!argv[i].starts_with("--shard=") && !argv[i].starts_with("--json="))
      kept.push_back(argv[i]);
  }
  return kept;
}

std::string missing_parts(const std::vector<const RunRecord*>& by_index) {
  std::string names;
  for (std::size_t i = 0; i < by_index.size(); ++i) {
    if (!by_index[i]) names += fmt::format("{}{}/{}", names.empty() ? "" : ", ", i, by_index.size());
  }
  return names;
}

}  // namespace

RunRecord merge_shards(std::vector<std::pair<std::string, RunRecord>> parts) {
  if (parts.empty()) throw BadInput("PART", "(none)", "must be the records of all parts");
  const auto& [first_source, first] = parts.front();
  std::vector<const RunRecord*> by_index(place_of(first_source, first).parts);
  for (const auto& [source, record] : parts) {
    const Place place = place_of(source, record);
    const auto refuse = [&source = source](const std::string& why) { throw BadInput("PART", source, why); };
    if (place.parts != by_index.size())
      refuse(fmt::format("must be one of {} parts, not of {}", by_index.size(), place.parts));
    if (by_index[place.index])
      refuse(fmt::format("must be there once: part {} was given twice", *record.shard));
    if (whole_command(record.argv) != whole_command(first.argv))
      refuse("must be of the same command as " + first_source);
    if (record.git != first.git) refuse("must be made at the same commit as " + first_source);
    by_index[place.index] = &record;
  }
  if (const std::string missing = missing_parts(by_index); !missing.empty()) {
    throw BadInput("PART", missing, "is missing");
  }
  RunRecord whole = first;
  whole.argv = whole_command(first.argv);
  whole.shard.reset();
  whole.cost.reset();
  whole.runs.clear();
  for (const RunRecord* part : by_index) {
    whole.runs.insert(whole.runs.end(), part->runs.begin(), part->runs.end());
    whole.when = std::max(whole.when, part->when);
    if (!part->cost) continue;
    if (!whole.cost) whole.cost.emplace();
    whole.cost->elapsed_s += part->cost->elapsed_s;
    whole.cost->peak_memory_bytes = std::max(whole.cost->peak_memory_bytes, part->cost->peak_memory_bytes);
  }
  return whole;
}

}  // namespace tilescope
