// SPDX-License-Identifier: Apache-2.0
// A report before it has a format: verdicts, and sections of paragraphs, tables and figures, written as HTML
// or Markdown.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tilescope {

/// What to think of a figure; pages colour it so.
enum class Outcome : std::uint8_t { good, mixed, bad, informational };

/// Running text. Inline marks: **strong**, `code`, [text](address) where may_link_to(address); everything
/// else is literal, whatever format is written: texts of records stand in it.
struct Paragraph {
  std::string text;
};

/// Unordered items of inline text.
struct Bullets {
  std::vector<std::string> items;
  std::string folded_under = {};  // what one opens to read them; empty: they stand open
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
  /// Header of a column that repeats those headings in each of their rows, where readers can sort; if there
  /// are any.
  std::string group_header = "problem";
  /// What to think of the last cell of each row; empty where there is nothing to think.
  std::vector<Outcome> outcomes = {};
};

/// Tables with more rows stand behind a fold.
inline constexpr std::size_t kMostOpenRows = 12;

/// What is drawn, as elements of SVG in a frame kDrawingWidth wide; classes as in templates/figure.css.
struct Drawing {
  double height = 0;
  std::string elements;
};
inline constexpr double kDrawingWidth = 400;

/// One plot of a figure.
struct Panel {
  std::string title;  // what distinguishes it from the others, usually its problem
  Drawing drawing;
  std::vector<std::string> commands = {};  // those of the figure that made what it shows
  bool steps = false;                      // its curves are known at steps, which a reader may walk through
};

/// Plots with what to see in them and what reproduces them.
struct Figure {
  std::string name;                        // file stem and anchor, e.g. "bytes-against-seqlen-forward"
  std::string title;                       // inline text: what is seen
  std::string caption = {};                // inline text
  std::vector<std::string> commands = {};  // that made the records behind it, without --json
  std::vector<Panel> panels = {};          // small multiples, or one
  Drawing legend = {};                     // of all panels, where they have none of their own
};

/// The lines that make records by `commands` and a report of them.
std::vector<std::string> reproduction(const std::vector<std::string>& commands);

using Block = std::variant<Paragraph, Bullets, CommandLines, Table, Figure>;

/// What sections stand together, in this order.
enum class SectionGroup : std::uint8_t { bytes, model, speed, checks, others };
inline constexpr std::size_t kSectionGroups = 5;
const char* title_of(SectionGroup group);

/// So many have no contents: a reader sees them.
inline constexpr std::size_t kFewSections = 3;

struct Section {
  std::string name;  // anchor
  std::string title;
  std::vector<Block> blocks;
  bool open = false;  // to be seen without a click
  SectionGroup group = SectionGroup::bytes;
};

/// "DRAM 1.00x": a figure, what it is of, and what to think of it.
struct Amount {
  std::string value;
  std::string of = {};
  Outcome outcome = Outcome::informational;
};

/// Figures of one thing, such as a kernel.
struct FindingLine {
  std::vector<Amount> amounts;
  std::string of = {};  // inline text; empty where the finding is of one thing
};

/// A question that opens a report: figures, and what they say in two sentences.
struct Finding {
  std::string question;
  std::vector<FindingLine> lines;
  std::string sentence;  // inline text, with its machine
  Outcome outcome = Outcome::informational;
  std::string section;  // that shows more

  /// "`gpu:flash2`: DRAM 1.00x, SM<->L2 4.55x"
  std::string figures() const;
};

struct Document {
  std::string title;
  std::string lead;  // inline text
  std::vector<Section> sections;
  std::vector<Finding> verdicts = {};
  /// Stand in no report, but where a text asks for them by name.
  std::vector<Section> for_texts = {};
  /// Opens the report: panels of which a page shows one at a time, the first one unless a reader chooses
  /// another.
  std::optional<Figure> picture = {};
};

/// One page with its style, its script and every figure inside; nothing is fetched, and all is there without
/// the script.
std::string to_html(const Document& document);

/// GitHub Markdown; a section's name is its anchor, whatever its title; figures are links to
/// `figure_folder`/NAME.svg, and of very long tables only the beginning stands there: the rest
/// is in to_html().
std::string to_markdown(const Document& document, std::string_view figure_folder);

/// The questions that the report opens with, a row each.
Table verdict_table(const Document& document);

/// What the words of reports and commands mean, a row each, in the order in which one meets them.
Table glossary_table();

/// The document with one of its sections alone. @throws BadInput on another name, naming those it has
Document with_section_alone(Document document, std::string_view name);

/// One block alone, as it stands inside to_markdown().
std::string to_markdown(const Block& block, std::string_view figure_folder);

/// A whole SVG document of the figure: its panels side by side, its legend below, without what a script
/// reads.
std::string to_svg(const Figure& figure);

/// The same as PDF. @throws MachineLacks without the program that converts it, naming its package
std::string to_pdf(const std::string& svg);

/// The caption, which the title of a single panel opens: what is drawn, where no panel beside it needs a
/// heading.
std::string caption_text(const Figure& figure);

/// Takes the marker elements of its drawings out of `markup`.
/// @return each once, in the order in which they first came
std::string take_markers(std::string& markup);

/// Text as HTML and SVG, between tags and in attributes, without control characters.
std::string escape_markup(std::string_view text);

/// Inline text as Markdown: marks stay, and what else Markdown would take for markup is escaped. One line.
std::string escape_markdown(std::string_view text);

/// Whether an inline link may lead there: http(s), a place in the page, or a relative path.
bool may_link_to(std::string_view address);

/// Takes from `rest` the text up to `end`, and `end`; nothing when `end` does not follow.
bool take_until(std::string_view& rest, std::string_view end, std::string_view& taken);

/// Appends what is not there yet: each thing once, in the order of its first appearance.
template <typename Item>
void add_new(std::vector<Item>& items, const Item& item) {
  if (std::ranges::find(items, item) == items.end()) items.push_back(item);
}

/// Leaves out, section by section, sentences that an earlier figure's caption has, unless they open a
/// caption, and refers to commands that stand there already. Columns with a dash in every row go. A block
/// that is shown alone keeps all.
Document without_repetition(Document document);

/// `text`, such as the README, with what stands between <!-- generated: NAME --> and <!-- /generated -->
/// replaced by the section or figure NAME of `document`.
/// @param source what error messages call the text, usually its path
/// @param figure_folder how the text reaches the folder of the SVG files
/// @throws BadInput on a name that the document does not have, naming those it has, or an unpaired marker
std::string fill_generated_parts(const std::string& source, std::string_view text, const Document& document,
                                 std::string_view figure_folder);

/// Contents of a file of templates. Precondition: it is one of them.
/// @param path relative to analysis/report/, e.g. "templates/report.css"
std::string_view embedded_file(std::string_view path);

}  // namespace tilescope
