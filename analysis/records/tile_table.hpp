// SPDX-License-Identifier: Apache-2.0
// Tile shapes that `bench --tune` found fastest, in a JSON file (schema "tilescope.tiles/1") that the
// commands which run GPU kernels take their tiles from.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

struct TriedTile {
  TileShape tile;
  double median_s = 0;
  bool operator==(const TriedTile&) const = default;
};

/// The fastest shape of one pass, and what it was chosen from.
struct TileChoice {
  // What it holds for.
  std::string device;  // "NVIDIA H200"
  std::string kernel;
  PassName pass = PassName::forward;
  std::int64_t head_dim = 0;
  ElementType dtype = ElementType::fp16;
  bool causal = false;
  // What was found.
  TileShape tile;
  std::vector<TriedTile> tried;
  std::string problem;  // that was timed, in words
  std::string when;     // ISO 8601, UTC
  std::string git_sha;  // of the program that timed it

  bool same_key(const TileChoice& other) const;
  bool operator==(const TileChoice&) const = default;
};

class TileTable {
 public:
  const std::vector<TileChoice>& choices() const { return choices_; }
  /// Replaces the choice with the same key.
  void put(TileChoice choice);
  /// `options` with the tuned shapes in their place, as far as they are among those that `legal` names.
  ProgramOptions apply(std::string_view kernel, const AttentionProblem& problem, std::string_view device,
                       ProgramOptions options,
                       const std::function<std::vector<TileShape>(PassName)>& legal) const;

 private:
  std::vector<TileChoice> choices_;
};

std::string to_json_text(const TileTable& table);
/// @throws BadInput naming source, field and value on damaged JSON, another schema, or a wrong value
TileTable parse_tile_table(const std::string& source, std::string_view text);
/// The table at `path`; an empty one if there is no such file.
TileTable read_tile_table(const std::string& path);

/// TILESCOPE_TILES, else tilescope/tiles.json in XDG_CACHE_HOME, else in ~/.cache.
std::string tile_table_path();
/// Whether TILESCOPE_DISABLE_AUTOTUNE says that kernels shall keep their own tiles. @throws BadInput unless
/// it is 0 or 1
bool autotune_disabled();

}  // namespace tilescope
