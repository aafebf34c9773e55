// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/tile_table.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "analysis/records/files/text_file.hpp"
#include "analysis/records/record_kinds.hpp"
#include "analysis/records/record_parts.hpp"
#include "analysis/records/record_schemas.hpp"
#include "profiler/records/field_schema.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kTileSchema = "tilescope.tiles/1";

auto key(const TileChoice& c) {
  return std::tie(c.device, c.kernel, c.pass, c.head_dim, c.dtype, c.causal, c.seqlen);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Doublings from one bucket to another; a choice for all lengths is farther than any of them.
int distance(std::int64_t of_choice, std::int64_t bucket) {
  if (of_choice == 0) return 64;
  const auto doublings = [](std::int64_t length) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(length)));
  };
  return std::abs(doublings(of_choice) - doublings(bucket));
}

struct TileFile {
  std::vector<TileChoice> choices;
};

}  // namespace

template <typename Fields>
static void list(Fields& fields, Of<Fields, PassChoice>& choice) {
  fields.required("tile", Part<TileShape>{}, choice.tile);
  // Beside it where they are not the kernel's own.
  fields.unless(0, "warps", Integer{1, 32}, choice.launch.warps);
  fields.unless(0, "stages", Integer{1, 64}, choice.launch.stages);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, TriedTile>& tried) {
  list(fields, tried.choice);
  fields.required("median_s", Positive{}, tried.median_s);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, TileChoice>& choice) {
  fields.required("device", Text{}, choice.device);
  fields.required("kernel", Text{}, choice.kernel);
  fields.required("pass", Named(parse_pass_name), choice.pass);
  fields.required("head_dim", Integer{1, kMaxHeadDim}, choice.head_dim);
  fields.required("dtype", Named(parse_element_type), choice.dtype);
  fields.required("causal", Flag{}, choice.causal);
  fields.unless(std::int64_t{0}, "seqlen", Integer{1, 2 * kMaxSeqlen}, choice.seqlen);
  list(fields, choice.choice);
  fields.items("tried", Part<TriedTile>{}, choice.tried);
  fields.required("problem", Text{}, choice.problem);
  fields.required("when", Text{}, choice.when);
  fields.required("git_sha", Text{}, choice.git_sha);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, TileFile>& file) {
  fields.items("choices", Part<TileChoice>{}, file.choices);
}

std::int64_t length_bucket(const AttentionProblem& problem) {
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max(problem.seqlen_q, problem.seqlen_k))));
}

bool TileChoice::same_key(const TileChoice& other) const { return key(*this) == key(other); }

void TileTable::put(TileChoice choice) {
  const auto place =
      std::ranges::find_if(choices_, [&](const TileChoice& other) { return other.same_key(choice); });
  if (place == choices_.end()) {
    choices_.push_back(std::move(choice));
  } else {
    *place = std::move(choice);
  }
}

ProgramOptions TileTable::apply(std::string_view kernel, const AttentionProblem& problem,
                                std::string_view device, ProgramOptions options,
                                const std::function<std::vector<PassChoice>(PassName)>& legal) const {
  std::array<const TileChoice*, kNumPasses> nearest = {};
  const std::int64_t bucket = length_bucket(problem);
  for (const TileChoice& choice : choices_) {
    if (choice.device != device || choice.kernel != kernel || choice.head_dim != problem.head_dim ||
        choice.dtype != problem.dtype || choice.causal != problem.causal) {
      continue;
    }
    const std::vector<PassChoice> choices = legal(choice.pass);
    if (std::ranges::find(choices, choice.choice) == choices.end()) continue;
    const TileChoice*& best = nearest[static_cast<std::size_t>(choice.pass)];
    if (!best || distance(choice.seqlen, bucket) < distance(best->seqlen, bucket)) best = &choice;
  }
  for (const TileChoice* choice : nearest) {
    if (!choice) continue;
    options[choice->pass].tile = choice->choice.tile;
    options[choice->pass].launch = choice->choice.launch;
  }
  return options;
}

std::string to_json_text(const TileTable& table) {
  return record_json(kTileSchema, TileFile{table.choices()}).dump(1) + "\n";
}

Json tile_table_schema() { return record_schema<TileFile>(kTileSchema); }

TileTable parse_tile_table(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  require_kind(source, json, {kTileSchema});
  TileTable table;
  for (const JsonField& field : JsonField(source, json).at("choices").items()) {
    if (field.at("pass").value() != "backward") {
      table.put(Part<TileChoice>{}.read(field));
      continue;
    }
    // So older tables call the pass over kv tiles in either order.
    for (const PassName pass : {PassName::dkdvdq, PassName::dkdv}) {
      Json choice = field.value();
      choice["pass"] = to_string(pass);
      table.put(Part<TileChoice>{}.read(JsonField(source, choice)));
    }
  }
  return table;
}

TileTable read_tile_table(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) return {};
  return parse_tile_table(path, read_text_file(path));
}

std::string tile_table_path() {
  if (const std::string named = variable("TILESCOPE_TILES"); !named.empty()) return named;
  const std::string cache = variable("XDG_CACHE_HOME");
  const std::string folder = cache.empty() ? variable("HOME") + "/.cache" : cache;
  return folder + "/tilescope/tiles.json";
}

bool autotune_disabled() {
  const std::string value = variable("TILESCOPE_DISABLE_AUTOTUNE");
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  throw BadInput("TILESCOPE_DISABLE_AUTOTUNE", value, "must be 0 or 1");
}

}  // namespace tilescope
