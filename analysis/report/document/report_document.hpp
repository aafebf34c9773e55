// SPDX-License-Identifier: Apache-2.0
// A report before it has a format: sections of paragraphs, tables and figures, written as HTML or Markdown.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tilescope {

/// Running text. Inline marks: **strong**, `code`, [text](address); everything else is literal.
struct Paragraph {
  std::string text;
};

/// Unordered items of inline text.
struct Bullets {
  std::vector<std::string> items;
};

/// Commands that a reader can copy.
struct CommandLines {
  std::vector<std::string> lines;
};

/// Cells hold inline text. Numbers stand right-aligned, so their columns do too.
struct Table {
  struct Column {
    std::string header;
    bool numeric = false;
  };
  std::string caption;  // inline text; may be empty
  std::vector<Column> columns;
  /// Each as long as `columns`, or of one cell: a heading over the rows below it.
  std::vector<std::vector<std::string>> rows;
};

/// A plot with what to see in it and what reproduces it.
struct Figure {
  std::string name;                   // file stem and anchor, e.g. "bytes-against-seqlen-forward"
  std::string title;                  // inline text
  std::string caption;                // inline text
  std::vector<std::string> commands;  // that made the records behind it, without --json
  std::string svg;                    // a whole SVG document
};

/// The lines that make records by `commands` and a report of them.
std::vector<std::string> reproduction(const std::vector<std::string>& commands);

using Block = std::variant<Paragraph, Bullets, CommandLines, Table, Figure>;

struct Section {
  std::string name;  // anchor
  std::string title;
  std::vector<Block> blocks;
};

struct Document {
  std::string title;
  std::string lead;  // inline text
  std::vector<Section> sections;
};

/// One page with its style and every figure inside; no script, nothing fetched.
std::string to_html(const Document& document);

/// GitHub Markdown; figures are links to `figure_folder`/NAME.svg.
std::string to_markdown(const Document& document, std::string_view figure_folder);

/// One block alone, as it stands inside to_markdown().
std::string to_markdown(const Block& block, std::string_view figure_folder);

}  // namespace tilescope
