// SPDX-License-Identifier: Apache-2.0
// Tile shapes, warps and stages that `bench --tune` found fastest, in a JSON file (schema
// "tilescope.tiles/1") that the commands which run GPU kernels take theirs from.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

struct TriedTile {
  PassChoice choice;
  double median_s = 0;
  bool operator==(const TriedTile&) const = default;
};

/// The lengths for which a choice was made: those above half of this and up to it, a power of two. 0: all,
/// in tables that are older than buckets.
std::int64_t length_bucket(const AttentionProblem& problem);

/// The fastest choice of one pass, and what it was chosen from.
struct TileChoice {
  // What it holds for.
  std::string device;  // "NVIDIA H200"
  std::string kernel;
  PassName pass = PassName::forward;
  std::int64_t head_dim = 0;
  ElementType dtype = ElementType::fp16;
  bool causal = false;
  std::int64_t seqlen = 0;  // length_bucket()
  // What was found.
  PassChoice choice;
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
  /// `options` with the tuned choices in their place, as far as they are among those that `legal` names: of
  /// the problem's bucket of lengths, else of the nearest.
  ProgramOptions apply(std::string_view kernel, const AttentionProblem& problem, std::string_view device,
                       ProgramOptions options,
                       const std::function<std::vector<PassChoice>(PassName)>& legal) const;

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
