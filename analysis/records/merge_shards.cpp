// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/merge_shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

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
  const char* rest = slash;
  if (bad_index == std::errc() && slash != end && *slash == '/')
    rest = std::from_chars(slash + 1, end, place.parts).ptr;
  if (rest != end || place.index >= place.parts)
    throw BadInput("shard", *record.shard, "must be I/N in " + source);
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

using Parts = std::map<std::size_t, const RunRecord*>;  // by index

/// The first few of those that are not there; a part may say that there are very many.
std::string missing_parts(const Parts& found, std::size_t parts) {
  constexpr std::size_t kMostNamed = 8;
  std::string names;
  std::size_t named = 0;
  for (std::size_t i = 0; i < parts && named < kMostNamed; ++i) {
    if (found.contains(i)) continue;
    names += fmt::format("{}{}/{}", named++ == 0 ? "" : ", ", i, parts);
  }
  const std::size_t others = parts - found.size() - named;
  return others == 0 ? names : fmt::format("{} and {} others", names, others);
}

}  // namespace

RunRecord merge_shards(std::vector<std::pair<std::string, RunRecord>> parts) {
  if (parts.empty()) throw BadInput("PART", "(none)", "must be the records of all parts");
  const auto& [first_source, first] = parts.front();
  const std::size_t number = place_of(first_source, first).parts;
  Parts by_index;
  for (const auto& [source, record] : parts) {
    const Place place = place_of(source, record);
    const auto refuse = [&source = source](const std::string& why) { throw BadInput("PART", source, why); };
    if (place.parts != number) refuse(fmt::format("must be one of {} parts, not of {}", number, place.parts));
    if (by_index.contains(place.index))
      refuse(fmt::format("must be there once: part {} was given twice", *record.shard));
    if (whole_command(record.argv) != whole_command(first.argv))
      refuse("must be of the same command as " + first_source);
    if (record.git != first.git) refuse("must be made at the same commit as " + first_source);
    by_index[place.index] = &record;
  }
  if (by_index.size() < number) throw BadInput("PART", missing_parts(by_index, number), "is missing");
  RunRecord whole = first;
  whole.argv = whole_command(first.argv);
  whole.shard.reset();
  whole.cost.reset();
  whole.runs.clear();
  for (const auto& [index, part] : by_index) {
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
