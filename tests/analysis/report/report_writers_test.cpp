// SPDX-License-Identifier: Apache-2.0
// HTML, Markdown, and the parts of a committed page that are made again.
#include <doctest/doctest.h>

#include "analysis/report/document/generated_text.hpp"
#include "common/errors.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;

Document small_document() {
  Table table{"", {{"a"}, {"b", true}}, {{"x|y", "1"}, {"heading"}}};
  Figure figure{
      "fig", "A <figure>.", "See `it`.", {"run it"}, "<?xml?>\n<svg width=\"1\"><use href='#p'/></svg>"};
  return {"T & t",
          "Lead **strong** SM<->L2 [there](address).",
          {{"one", "One", {Paragraph{"a < b"}, table, figure}}, {"two", "Two", {Bullets{{"item"}}}}}};
}

TEST_CASE("HTML escapes text, keeps inline marks and makes SVG ids unique") {
  const std::string html = to_html(small_document());
  for (const char* part :
       {"<title>T &amp; t</title>", "<strong>strong</strong>", "SM&lt;-&gt;L2",
        "<a href=\"address\">there</a>", "a &lt; b", "A &lt;figure&gt;.", "<code>it</code>", "href='#fig-p'",
        "<th colspan=\"2\">heading</th>", "<td class=\"number\">1</td>"}) {
    CAPTURE(part);
    CHECK(contains(html, part));
  }
  for (const char* part : {"<script", "src=", "@import", "<?xml", "url(http"}) {
    CAPTURE(part);
    CHECK_FALSE(contains(html, part));
  }
}

TEST_CASE("Markdown escapes bars in cells and links figures") {
  const std::string markdown = to_markdown(small_document(), "figures");
  CHECK(contains(markdown, "| x\\|y | 1 |\n"));
  CHECK(contains(markdown, "| **heading** | |\n"));
  CHECK(contains(markdown, "![A <figure>.](figures/fig.svg)"));
}

TEST_CASE("generated parts are replaced, and only they") {
  const Document document = small_document();
  const std::string text =
      "before\n<!-- generated: fig -->\nold\n<!-- /generated -->\nbetween\n"
      "<!-- generated: two -->\n<!-- /generated -->\nafter\n";
  const std::string filled = fill_generated_parts("README.md", text, document, "reports/figures");
  CHECK(filled.starts_with("before\n<!-- generated: fig -->\n\n![A <figure>.](reports/figures/fig.svg)"));
  CHECK(contains(filled,
                 "<!-- /generated -->\nbetween\n<!-- generated: two -->\n\n- item\n\n<!-- /generated -->"));
  CHECK(filled.ends_with("after\n"));
  CHECK_FALSE(contains(filled, "old"));
  CHECK(fill_generated_parts("README.md", filled, document, "reports/figures") == filled);
  const auto complaint = [&document](const std::string& bad) -> std::string {
    try {
      fill_generated_parts("README.md", bad, document, "f");
    } catch (const BadInput& error) {
      return error.what();
    }
    return "";
  };
  CHECK(contains(complaint("<!-- generated: fog -->\n<!-- /generated -->"), "fog"));
  CHECK(contains(complaint("<!-- generated: fog -->\n<!-- /generated -->"), "fig"));
  CHECK(contains(complaint("<!-- generated: fig -->"), "must be closed"));
  CHECK(contains(complaint("<!-- generated: fig --> <!-- generated: one --> <!-- /generated -->"),
                 "must be closed"));
}

}  // namespace
}  // namespace tilescope
