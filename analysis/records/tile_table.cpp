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
#include "profiler/records/json_fields.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kTileSchema = "tilescope.tiles/1";

auto key(const TileChoice& c) {
  return std::tie(c.device, c.kernel, c.pass, c.head_dim, c.dtype, c.causal, c.seqlen);
}

Json to_json(TileShape tile) { return {{"block_m", tile.block_m}, {"block_n", tile.block_n}}; }

TileShape tile_from(const JsonField& field) {
  constexpr int kMost = 4096;
  return {static_cast<int>(field.at("block_m").integer(1, kMost)),
          static_cast<int>(field.at("block_n").integer(1, kMost))};
}

/// Warps and stages stand beside the tile where they are not the kernel's own.
void add_choice(Json& json, const PassChoice& choice) {
  json["tile"] = to_json(choice.tile);
  if (choice.launch.warps > 0) json["warps"] = choice.launch.warps;
  if (choice.launch.stages > 0) json["stages"] = choice.launch.stages;
}

PassChoice pass_choice_from(const JsonField& field) {
  PassChoice choice{.tile = tile_from(field.at("tile"))};
  constexpr int kMostWarps = 32, kMostStages = 64;
  if (field.has("warps")) choice.launch.warps = static_cast<int>(field.at("warps").integer(1, kMostWarps));
  if (field.has("stages"))
    choice.launch.stages = static_cast<int>(field.at("stages").integer(1, kMostStages));
  return choice;
}

Json to_json(const TileChoice& choice) {
  Json json{{"device", choice.device}, {"kernel", choice.kernel}};
  json["pass"] = to_string(choice.pass);
  json["head_dim"] = choice.head_dim;
  json["dtype"] = to_string(choice.dtype);
  json["causal"] = choice.causal;
  if (choice.seqlen > 0) json["seqlen"] = choice.seqlen;
  add_choice(json, choice.choice);
  json["tried"] = Json::array();
  for (const TriedTile& tried : choice.tried) {
    Json& one = json["tried"].emplace_back(Json::object());
    add_choice(one, tried.choice);
    one["median_s"] = tried.median_s;
  }
  json["problem"] = choice.problem;
  json["when"] = choice.when;
  json["git_sha"] = choice.git_sha;
  return json;
}

/// The passes that a choice is for. Older tables say "backward" for the one over kv tiles in either order.
std::vector<PassName> passes_from(const JsonField& field) {
  if (field.text() == "backward") return {PassName::dkdvdq, PassName::dkdv};
  try {
    return {parse_pass_name(field.text())};
  } catch (const BadInput&) {
    field.refuse("is not the name of a pass");
  }
}

TileChoice choice_from(const JsonField& field, PassName pass) {
  TileChoice choice;
  choice.device = field.at("device").text();
  choice.kernel = field.at("kernel").text();
  choice.pass = pass;
  choice.head_dim = field.at("head_dim").integer(1, kMaxHeadDim);
  try {
    choice.dtype = parse_element_type(field.at("dtype").text());
  } catch (const BadInput& error) {
    field.at("dtype").refuse(error.what());
  }
  choice.causal = field.at("causal").boolean();
  if (field.has("seqlen")) choice.seqlen = field.at("seqlen").integer(1, 2 * kMaxSeqlen);
  choice.choice = pass_choice_from(field);
  for (const JsonField& tried : field.at("tried").items()) {
    choice.tried.push_back({pass_choice_from(tried), tried.at("median_s").positive()});
  }
  choice.problem = field.at("problem").text();
  choice.when = field.at("when").text();
  choice.git_sha = field.at("git_sha").text();
  return choice;
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

}  // namespace

std::int64_t length_bucket(const AttentionProblem& problem) {
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max(problem.seqlen_q, problem.seqlen_k))));
}

bool TileChoice::same_key(const TileChoice& other) const { return key(*this) == key(other); }

void TileTable::put(TileChoice choice) {
  const auto place = std::find_if(choices_.begin(), choices_.end(),
                                  [&](const TileChoice& other) { return other.same_key(choice); });
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
    if (std::find(choices.begin(), choices.end(), choice.choice) == choices.end()) continue;
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
  Json json;
  json["schema"] = kTileSchema;
  json["choices"] = Json::array();
  for (const TileChoice& choice : table.choices()) json["choices"].push_back(to_json(choice));
  return json.dump(1) + "\n";
}

TileTable parse_tile_table(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  require_kind(source, json, {kTileSchema});
  const JsonField field(source, json);
  TileTable table;
  for (const JsonField& choice : field.at("choices").items()) {
    for (const PassName pass : passes_from(choice.at("pass"))) table.put(choice_from(choice, pass));
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
