// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/program_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

constexpr TileShape kNoTile{0, 0};

/// A line with the deeper ones behind it.
struct Line {
  int number = 0;
  std::size_t indent = 0;
  std::vector<std::string> words;
  std::vector<Line> inner = {};
};

class Refusals {
 public:
  explicit Refusals(std::string source) : source_(std::move(source)) {}
  [[noreturn]] void at(const Line& line, const std::string& why) const {
    throw BadInput(fmt::format("{}, line {}", source_, line.number),
                   fmt::format("'{}'", fmt::join(line.words, " ")), why);
  }

 private:
  std::string source_;
};

/// Words of a line without its comment; commas separate as blanks do.
Line split(const std::string& text, int number) {
  std::string bare = text.substr(0, text.find('#'));
  std::replace(bare.begin(), bare.end(), ',', ' ');
  Line line{number, bare.find_first_not_of(' '), {}};
  std::istringstream words(bare);
  for (std::string word; words >> word;) line.words.push_back(word);
  return line;
}

/// Puts each line under the last one before it that is indented less.
std::vector<Line> nested(const std::vector<Line>& lines, std::size_t& at, std::size_t deeper_than, bool top) {
  std::vector<Line> all;
  while (at < lines.size() && (top || lines[at].indent > deeper_than)) {
    Line line = lines[at++];
    line.inner = nested(lines, at, line.indent, false);
    all.push_back(std::move(line));
  }
  return all;
}

std::vector<Line> parse_lines(const std::string& text) {
  std::vector<Line> lines;
  std::istringstream stream(text);
  int number = 0;
  for (std::string one; std::getline(stream, one);) {
    if (Line line = split(one, ++number); !line.words.empty()) lines.push_back(std::move(line));
  }
  std::size_t at = 0;
  return nested(lines, at, 0, true);
}

/// Reads the passes of a text; settings before all passes hold for each.
class Reader {
 public:
  Reader(const std::string& source, const std::string& text) : refuse_(source), lines_(parse_lines(text)) {}

  std::vector<TextPass> passes() {
    for (const Line& line : lines_) {
      const std::string& word = line.words.front();
      if (word == "forward" || word == "backward") {
        read_direction(line, word == "forward" ? Direction::forward : Direction::backward);
      } else if (!set(defaults_, line)) {
        refuse_.at(line, "must be forward, backward, tile, order or scan");
      }
    }
    return std::move(passes_);
  }

 private:
  int integer(const Line& line, const std::string& word, int most) const {
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < 1 || value > most) {
      refuse_.at(line, fmt::format("{} must be an integer in 1 ... {}", word, most));
    }
    return value;
  }

  TensorName tensor(const Line& line, const std::string& word) const {
    std::vector<std::string> names;
    for (int i = 0; i < kNumTensors; ++i) {
      names.emplace_back(to_string(static_cast<TensorName>(i)));
      if (names.back() == word) return static_cast<TensorName>(i);
    }
    const auto near = nearest_names(word, names);
    refuse_.at(line, fmt::format("{} is no tensor{}", word,
                                 near.empty() ? fmt::format("; there are {}", fmt::join(names, ", "))
                                              : fmt::format("; {}?", near.front())));
  }

  /// tile, order, scan, products, boxes. @return whether the line is one of them
  bool set(TextPass& pass, const Line& line) const {
    constexpr int kMostRows = 4096, kMostProducts = 64, kMostPanel = 1024;
    const std::string& word = line.words.front();
    const std::vector<std::string>& words = line.words;
    try {
      if (word == "order" && words.size() == 2) return pass.order = parse_tile_order(words[1]), true;
      if (word == "scan" && words.size() == 2) return pass.program.scan = parse_scan(words[1]), true;
    } catch (const BadInput& error) {
      refuse_.at(line, error.allowed());
    }
    if (word == "tile" && words.size() == 4 && words[2] == "x") {
      pass.program.tile = {integer(line, words[1], kMostRows), integer(line, words[3], kMostRows)};
    } else if (word == "products" && words.size() == 2) {
      pass.program.products = {.qk = integer(line, words[1], kMostProducts)};
    } else if (word == "boxes" && words.size() == 4) {
      pass.program.boxes.push_back(
          {tensor(line, words[1]), integer(line, words[2], kMostRows), integer(line, words[3], kMostPanel)});
    } else if (word == "tile" || word == "products" || word == "boxes") {
      refuse_.at(line, "must look like: tile 128 x 64; products 2; boxes k 64 128");
    } else {
      return false;
    }
    return true;
  }

  void read_direction(const Line& line, Direction direction) {
    for (const Line& inner : line.inner) {
      if (inner.words.front() != "pass" || inner.words.size() != 2) {
        refuse_.at(inner, "must be `pass NAME`");
      }
      passes_.push_back(read_pass(inner, direction));
    }
    if (line.inner.empty()) refuse_.at(line, "must hold a pass, indented");
  }

  TextPass read_pass(const Line& line, Direction direction) const {
    TextPass pass = defaults_;
    pass.direction = direction;
    pass.line = line.number;
    try {
      pass.program.name = parse_pass_name(line.words[1]);
    } catch (const BadInput& error) {
      refuse_.at(line, error.allowed());
    }
    const Line* cta = nullptr;
    for (const Line& inner : line.inner) {
      if (inner.words.front() == "cta" && cta == nullptr) {
        cta = &inner;
      } else if (!set(pass, inner)) {
        refuse_.at(inner, "must be tile, products, order, scan, boxes or, once, cta");
      }
    }
    if (cta == nullptr) refuse_.at(line, "must hold `cta` with what a CTA owns: m h, n hkv, n h, h or hkv");
    if (pass.program.tile == kNoTile) refuse_.at(line, "must have a tile: `tile 128 x 64` in it or above");
    read_cta(pass, *cta);
    return pass;
  }

  void read_cta(TextPass& pass, const Line& line) const {
    TileProgram& program = pass.program;
    const std::string owned = fmt::format("{}", fmt::join(line.words.begin() + 1, line.words.end(), " "));
    program.axis = owned == "m h" ? Axis::q : Axis::kv;
    program.kv_heads = owned == "n hkv" || owned == "hkv";
    program.whole_head = owned == "h" || owned == "hkv";
    if (owned != "m h" && owned != "n h" && owned != "n hkv" && !program.whole_head) {
      refuse_.at(line, "a CTA owns `m h`, `n h`, `n hkv`, `h` or `hkv`");
    }
    if (program.whole_head) {
      read_whole_head(pass, line);
    } else {
      read_block(pass, line.inner, line);
    }
  }

  /// Loops over every tile of one tensor, and then the loop over the kv tiles that the CTA works on.
  void read_whole_head(TextPass& pass, const Line& cta) const {
    if (cta.inner.empty()) refuse_.at(cta, "must hold loops, indented");
    for (std::size_t i = 0; i + 1 < cta.inner.size(); ++i) {
      const Line& loop = cta.inner[i];
      if (loop.words.front() != "for" || loop.words.size() != 2 || loop.inner.size() != 1 ||
          loop.inner.front().words.size() != 2) {
        refuse_.at(loop,
                   "before the last loop there are loops over m or n with one access of one tensor each");
      }
      const Line& access = loop.inner.front();
      read_access(pass, access, pass.program.init, loop.words[1] == "m", loop.words[1] == "n");
    }
    const Line& main = cta.inner.back();
    if (main.words != std::vector<std::string>{"for", "n"}) refuse_.at(main, "must be `for n`, the kv tiles");
    read_block(pass, main.inner, main);
  }

  /// What a CTA does with one block: accesses, loops over the other axis, accesses.
  void read_block(TextPass& pass, const std::vector<Line>& body, const Line& owner) const {
    TileProgram& program = pass.program;
    const bool by_m = program.axis == Axis::q;
    bool after_loops = false;
    for (const Line& line : body) {
      if (line.words.front() != "for") {
        const bool ends = after_loops || line.words.front() != "load";
        read_access(pass, line, ends ? program.epilogue : program.prologue, by_m, !by_m);
        continue;
      }
      if (!program.epilogue.empty())
        refuse_.at(line, "no loop may follow what is stored, or another group of loops");
      after_loops = true;
      if (program.kv_heads) {
        if (line.words != std::vector<std::string>{"for", "h"}) {
          refuse_.at(line, "a CTA of a key/value head loops over the query heads of its group: `for h`");
        }
        for (const Line& inner : line.inner) read_loop(pass, inner);
      } else {
        read_loop(pass, line);
      }
    }
    if (body.empty()) refuse_.at(owner, "must hold loads, loops and stores, indented");
  }

  /// One walk over the inner tiles.
  void read_loop(TextPass& pass, const Line& line) const {
    const char* axis = pass.program.axis == Axis::q ? "n" : "m";
    const std::vector<std::string> visible = {"for", axis}, all = {"for", "all", axis};
    if (line.words != visible && line.words != all) {
      refuse_.at(line, fmt::format("must be `for {0}` or `for all {0}`, the other axis's tiles", axis));
    }
    const bool dense = line.words == all;
    if (!pass.program.phases.empty() && dense != pass.program.dense) {
      refuse_.at(line, "the loops of a pass are all over the visible tiles, or all over every tile");
    }
    pass.program.dense = dense;
    std::vector<Operand>& phase = pass.program.phases.emplace_back();
    for (const Line& access : line.inner) read_access(pass, access, phase, true, true);
    if (phase.empty()) refuse_.at(line, "must hold loads or stores, indented");
  }

  /// "load k, v"; a tensor may say by which tile: k[n].
  /// @param m, n  of which axes a tile is chosen here
  void read_access(TextPass& pass, const Line& line, std::vector<Operand>& operands, bool m, bool n) const {
    const std::string& verb = line.words.front();
    const AccessKind kind = verb == "load"    ? AccessKind::load
                            : verb == "store" ? AccessKind::store
                                              : AccessKind::reduce;
    if ((kind == AccessKind::reduce && verb != "reduce") || line.words.size() < 2) {
      refuse_.at(line, "must be load, store or reduce with the tensors, or a loop");
    }
    if (!line.inner.empty()) refuse_.at(line.inner.front(), "nothing can stand inside a load or store");
    for (std::size_t i = 1; i < line.words.size(); ++i) {
      const std::string& word = line.words[i];
      const std::size_t bracket = word.find('[');
      const TensorName name = tensor(line, word.substr(0, bracket));
      const TensorExtent extent = tensor_extent({}, name);
      const char* tiles = extent.cut_by_m()   ? (extent.cut_by_n() ? "mn" : "m")
                          : extent.cut_by_n() ? "n"
                                              : "head";
      if (bracket != std::string::npos && word.substr(bracket) != fmt::format("[{}]", tiles)) {
        refuse_.at(line, fmt::format("{} lies beyond the tensor at some tile: {} is cut by {}", word,
                                     to_string(name), tiles));
      }
      if ((extent.cut_by_m() && !m) || (extent.cut_by_n() && !n)) {
        refuse_.at(line,
                   fmt::format("{} is cut by {}, and no such tile is chosen here", to_string(name), tiles));
      }
      operands.push_back({name, kind});
      (kind == AccessKind::load ? pass.loads : pass.stores).emplace(name, line.number);
    }
  }

  Refusals refuse_;
  std::vector<Line> lines_;
  TextPass defaults_ = [] {
    TextPass pass;
    pass.program.tile = kNoTile;
    return pass;
  }();
  std::vector<TextPass> passes_;
};

}  // namespace

ProgramText parse_program_text(const std::string& source, const std::string& text) {
  ProgramText program{source, Reader(source, text).passes()};
  if (program.passes.empty())
    throw BadInput(source, "no pass", "must hold `forward` or `backward` with passes");
  return program;
}

}  // namespace tilescope
