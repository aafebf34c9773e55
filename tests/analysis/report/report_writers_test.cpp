// SPDX-License-Identifier: Apache-2.0
// HTML, Markdown, and the parts of a committed page that are made again.
#include <doctest/doctest.h>

#include "analysis/report/document/report_document.hpp"
#include "common/errors.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;

Document small_document() {
  Table table{"", {{"a"}, {"b", true}}, {{"x|y", "1"}, {"heading"}}};
  Figure figure{"fig",
                "A <figure>.",
                "See `it`.",
                {"run it"},
                {{"left", {10, "<path d=\"M0 0\"/>"}}, {"right", {20, ""}, {"other", "more"}}}};
  return {"T & t",
          "Lead **strong** SM<->L2 [there](address).",
          {{"one", "One", {Paragraph{"a < b"}, table, figure}}, {"two", "Two", {Bullets{{"item"}}}}}};
}

TEST_CASE("HTML escapes text, keeps inline marks and tells each panel its problem and command") {
  const std::string html = to_html(small_document());
  for (const char* part :
       {"<title>T &amp; t</title>", "<strong>strong</strong>", "SM&lt;-&gt;L2",
        "<a href=\"address\">there</a>", "a &lt; b", "A &lt;figure&gt;.", "<code>it</code>",
        "<div class=\"panel\" data-p=\"left\" data-c=\"run it\">", "data-c=\"other\nand 1 more commands\"",
        "viewBox=\"0 0 400 10\"", "aria-label=\"A &lt;figure&gt;. right\"",
        "<table class=\"n2\" data-group=\"problem\">",
        "<tr><th>x|y<td>1\n<tr class=\"group\"><th colspan=\"2\">heading\n", "<h3>One</h3>"}) {
    CAPTURE(part);
    CHECK(contains(html, part));
  }
  for (const char* part : {"src=", "@import", "<?xml", "url(", "http"}) {
    CAPTURE(part);
    CHECK_FALSE(contains(html, part));
  }
}

TEST_CASE("a section says a sentence and its commands once, and a column of dashes not at all") {
  const auto figure = [](const std::string& name, const std::string& caption, const std::string& command) {
    return Figure{name, "Title.", caption, {command}, {{"", {10, ""}}}};
  };
  Table table{
      "", {{"kernel"}, {"hit rate", true}, {"N", true}}, {{"heading"}, {"a", "-", "1"}, {"b", "-", "-"}}};
  const Document document{"t",
                          "",
                          {{"one", "One", {figure("f1", "N is 1. Solid is closed form.", "run a"), table}},
                           {"two",
                            "Two",
                            {figure("f2", "N is 1. Solid is closed form.", "run a"),
                             figure("f3", "N is 2. Solid is closed form.", "run a"),
                             figure("f4", "N is 2. Solid is closed form. Dots are counters.", "run b")}}}};
  const std::string markdown = to_markdown(document, "f");
  CHECK(contains(markdown, "f2.svg)\n\n**Title.** N is 1. Solid is closed form.\n\n```\nrun a"));
  CHECK(contains(markdown, "f3.svg)\n\n**Title.** N is 2. By the same commands.\n\n!["));
  CHECK(contains(markdown, "f4.svg)\n\n**Title.** N is 2. Dots are counters.\n\n```\nrun b"));
  CHECK(contains(markdown, "| kernel | N |\n|---|---:|\n| **heading** | |\n| a | 1 |\n| b | - |\n"));
  const std::string html = to_html(document);
  CHECK_FALSE(contains(html, "hit rate"));
  CHECK(contains(html, "By the same commands."));
  // Alone it says all.
  CHECK(contains(to_markdown(document.sections[1].blocks[1], "f"), "N is 2. Solid is closed form."));
}

TEST_CASE("long tables fold, and a figure's panels stand in one drawing") {
  Document document = small_document();
  Table table{"Long.", {{"n", true}}, {}};
  for (std::size_t i = 0; i <= kMostOpenRows; ++i) table.rows.push_back({std::to_string(i)});
  // A page of few sections has room for them.
  document.sections = std::vector<Section>(kFewSections, {"s", "S", {table}});
  CHECK(contains(to_html(document), "<details class=\"long\" open><summary>13 rows</summary>"));
  CHECK(contains(to_markdown(document, "f"), "Long.\n\n<details open><summary>13 rows</summary>\n\n| n |"));
  document.sections.push_back(document.sections.front());
  CHECK(contains(to_html(document), "<details class=\"long\"><summary>13 rows</summary>"));
  CHECK(contains(to_markdown(document, "f"), "Long.\n\n<details><summary>13 rows</summary>\n\n| n |"));
  Table grouped{"", {{"n"}, {"m"}}, {{"heading"}}};
  for (std::size_t i = 0; i <= kMostOpenRows; ++i) grouped.rows.push_back({"1", "2"});
  CHECK(contains(to_html({"", "", {{"s", "S", {grouped}}}}), "<summary>13 rows</summary>"));
  table.rows.pop_back();
  document.sections = {{"s", "S", {table}}};
  CHECK_FALSE(contains(to_html(document), "<summary>12 rows"));
  CHECK_FALSE(contains(to_markdown(document, "f"), "<details>"));
  const Document small = small_document();
  const std::string svg = to_svg(std::get<Figure>(small.sections[0].blocks[2]));
  CHECK(svg.starts_with("<svg xmlns="));
  Figure wide{"f",
              "T.",
              "",
              {},
              {{"B64 H16 N1024 D64 fp16, NVIDIA H200. From gpu:standard to gpu:flash2-mma it grows", {}},
               {"right", {}}}};
  // A heading that is wider than its panel would run into the next one.
  CHECK(contains(to_svg(wide),
                 "fp16, NVIDIA H200. From</text>\n<text class=\"h\" x=\"12\" y=\"40\">gpu:standard to"));
  for (const char* part :
       {">left</text>", ">right</text>", "<title>A &lt;figure&gt;.</title>", "<path d=\"M0 0\"/>"}) {
    CHECK(contains(svg, part));
  }
}

TEST_CASE("a column of long texts is no narrow one, and a caption begins behind its title") {
  const Table table{
      "", {{"kernel"}, {"of it"}, {"n", true}}, {{"k", "spills read back +0.000 ... +0.025 %", "1"}}};
  CHECK(contains(
      to_html({"", "", {{"s", "S", {table}}}}),
      "<th scope=\"col\">kernel</th><th scope=\"col\" class=\"w\">of it</th><th scope=\"col\">n</th>"));
  const auto caption = [](const char* title) {
    return to_markdown(Block(Figure{"f", title, "Bytes of a launch."}), "figures");
  };
  CHECK(contains(caption("What moves"), "**What moves.** Bytes"));
  CHECK(contains(caption("What moves."), "**What moves.** Bytes"));
}

TEST_CASE("a list that few will read is folded, and holds no tools of a table") {
  const Document document{"", "", {{"s", "S", {Bullets{{"item"}, "One number"}}}}};
  CHECK(contains(
      to_html(document),
      "<details class=\"more\"><summary>One number</summary>\n<ul>\n<li>item</li>\n</ul>\n</details>"));
  CHECK(
      contains(to_markdown(document, "f"), "<details><summary>One number</summary>\n\n- item\n\n</details>"));
}

TEST_CASE("a very long table is begun in Markdown, which says where the rest stands") {
  Table table{"Very long.", {{"n", true}}, {}};
  for (int i = 0; i < 61; ++i) table.rows.push_back({std::to_string(i)});
  const Block block = table;
  const std::string markdown = to_markdown(block, "reports/figures");
  CHECK(contains(markdown, "| 11 |\n\nThe other 49 rows stand in report.html, which `tilescope report`"));
  CHECK(contains(to_html({"", "", {{"s", "S", {table}}}}), "<tr><th>60"));
  table.rows.pop_back();
  CHECK(contains(to_markdown(Block(table), "figures"), "| 59 |\n\n</details>"));
}

TEST_CASE("a figure's own file holds nothing that only the page's script reads") {
  const std::string marked =
      "<g class=\"c0\" data-s=\"a, b\"><path d=\"M0 0\" data-t=\"1: 2\"/><text>c data-t</text></g>";
  const Figure figure{"f", "F", "", {}, {{"p", {10, marked}}}};
  CHECK(contains(to_svg(figure), "<g class=\"c0\"><path d=\"M0 0\"/><text>c data-t</text></g>"));
  CHECK(contains(to_html({"", "", {{"s", "S", {figure}}}}), marked));
}

TEST_CASE("the mark that lines bear at their points stands once a page, and once a figure's file") {
  const std::string marker = "<marker id=\"m1c2\"><path d=\"M0 0\"/></marker>";
  const std::string line = marker + "<polyline style=\"marker:url(#m1c2)\" points=\"0,0\"/>";
  const Figure figure{"f", "F", "", {}, {{"p", {10, line + line}}, {"q", {10, line}}}};
  for (const std::string& text : {to_svg(figure), to_html({"", "", {{"s", "S", {figure, figure}}}})}) {
    const std::size_t at = text.find(marker);
    CHECK(at != std::string::npos);
    CHECK(text.find("<marker", at + 1) == std::string::npos);
    CHECK(contains(text, "\n<polyline style"));
  }
}

TEST_CASE("verdicts come first") {
  Document document = small_document();
  document.verdicts = {{"Is it?", {{{{"1 of 2"}}}}, "**Half.** So it is.", Outcome::mixed, "one"},
                       {"Is `b`?",
                        {{{{"1.00x", "DRAM", Outcome::good}, {"26.6x", "SM<->L2", Outcome::bad}}, "`b`"}},
                        "So it is.",
                        Outcome::good,
                        "two"}};
  const std::string html = to_html(document), markdown = to_markdown(document, "f");
  CHECK(html.find("verdict mixed") < html.find("Lead"));
  CHECK(contains(html, "<b class=\"good\"><small>DRAM</small> 1.00x</b> <b class=\"bad\"><small>"));
  CHECK(contains(markdown, "| Is `b`? | **`b`: DRAM 1.00x, SM<->L2 26.6x** |"));
  CHECK(contains(html, "<strong>Half.</strong> So it is. <a href=\"#one\">More</a>"));
  CHECK(markdown.find("| Is it? | **1 of 2** | **Half.** So it is. |") < markdown.find("Lead"));
}

TEST_CASE("sections stand in groups, which many of them have contents of") {
  Document document{"t", "", {}};
  for (const auto& [name, group] : {std::pair("a", SectionGroup::bytes),
                                    {"b", SectionGroup::bytes},
                                    {"c", SectionGroup::speed},
                                    {"d", SectionGroup::others}}) {
    document.sections.push_back(
        {name, std::string("On ") + name + " (NVIDIA H200)", {Paragraph{"x"}}, false, group});
  }
  const std::string html = to_html(document), markdown = to_markdown(document, "f");
  CHECK(contains(
      html, "<li><a href=\"#group-1\">Bytes</a>\n<ul>\n<li><a href=\"#a\">On a</a>\n<li><a href=\"#b\">"));
  CHECK(html.find("id=\"group-1\"") < html.find("id=\"a\""));
  CHECK(html.find("id=\"b\"") < html.find("id=\"group-3\""));
  CHECK_FALSE(contains(html, "group-2"));  // no section
  CHECK(contains(markdown, "- **Bytes**: [On a](#a), [On b](#b)\n- **Speed**: [On c](#c)\n"));
  CHECK(contains(markdown, "## Speed\n\n<a id=\"c\"></a>\n\n### On c (NVIDIA H200)\n"));
  document.sections.pop_back();
  CHECK_FALSE(contains(to_html(document), "<nav"));
}

TEST_CASE("one section alone, by its name") {
  const Document one = with_section_alone(small_document(), "two");
  CHECK(one.title == "Two");
  CHECK(one.sections.size() == 1);
  CHECK(one.sections[0].open);
  CHECK_THROWS_WITH_AS(with_section_alone(small_document(), "tow"),
                       "--section = tow: must be one of those that the records give: one, two", BadInput);
}

TEST_CASE("of a picture one panel is shown at a time, chosen without a script") {
  Document document = small_document();
  document.picture =
      Figure{"flow", "What moves.", "Bytes.", {"run it"}, {{"first", {10, ""}}, {"second", {20, ""}}}};
  const std::string html = to_html(document);
  CHECK(contains(html,
                 "id=\"flow-1\" checked>\n<label for=\"flow-1\">first</label>\n<div class=\"shown\"><svg"));
  CHECK(contains(html, "id=\"flow-2\">\n<label for=\"flow-2\">second</label>"));
  CHECK(html.find("class=\"picture\"") < html.find("class=\"lead\""));
  CHECK(contains(to_markdown(document, "f"), "![What moves.](f/flow.svg)"));
  document.picture->panels.pop_back();
  CHECK_FALSE(contains(to_html(document), "type=\"radio\""));  // nothing to choose
  CHECK(contains(fill_generated_parts("t", "<!-- generated: flow -->\n<!-- /generated -->", document, "f"),
                 "![What moves.](f/flow.svg)"));
}

TEST_CASE("what to think of a row's last cell is seen in the page") {
  Table table{"", {{"a"}, {"change", true}}, {{"x", "-1 %"}, {"y", "+1 %"}, {"z", "0"}}};
  table.outcomes = {Outcome::good, Outcome::bad};
  const std::string html = to_html({"", "", {{"s", "S", {table}}}});
  CHECK(
      contains(html, "<tr><th>x<td class=\"good\">-1 %\n<tr><th>y<td class=\"bad\">+1 %\n<tr><th>z<td>0\n"));
}

TEST_CASE("Markdown escapes bars in cells and links figures") {
  const std::string markdown = to_markdown(small_document(), "figures");
  CHECK(contains(markdown, "| x\\|y | 1 |\n"));
  CHECK(contains(markdown, "| **heading** | |\n"));
  CHECK(contains(markdown, "![A &lt;figure>.](figures/fig.svg)"));
}

TEST_CASE("texts of records are text in every format") {
  const std::string hostile[] = {"[x](javascript:alert%281%29)",
                                 "<script>alert(1)</script>",
                                 "a\n\n# heading",
                                 "```\n<b>",
                                 "``` <i>`",
                                 "\\`<u>`",
                                 "![x](data:text/html,1)",
                                 "[y]: javascript:1"};
  for (const std::string& text : hostile) {
    CAPTURE(text);
    const Table table{text, {{text}, {text}}, {{text, "1"}, {text}}};
    const Figure figure{"fig", text, text, {}, {{text, {10, ""}}, {text, {20, ""}}}};
    Document document{text, text, {{"one", text, {Paragraph{text}, table, figure, Bullets{{text}}}}}};
    document.verdicts = {{text, {{{{text, text}}, text}}, text, Outcome::good, "one"}};
    document.picture = figure;
    const std::string html = to_html(document), svg = to_svg(figure), markdown = to_markdown(document, "f");
    for (const char* live : {"href=\"javascript", "href=\"data:t", "<script>alert", "<b>", "<i>", "<u>"}) {
      CHECK_FALSE(contains(html, live));
      CHECK_FALSE(contains(svg, live));
    }
    for (const char* live : {"x](javascript", "x](data", "\n# heading", "\n[y]:"})
      CHECK_FALSE(contains(markdown, live));
  }
  CHECK(escape_markdown("``` <i>`") == "\\`\\`` <i>`");
  CHECK(escape_markdown("<script>") == "&lt;script>");
  CHECK(escape_markdown("a SM<->L2 `x<y>` **b** < c & d") == "a SM<->L2 `x<y>` **b** < c & d");
  CHECK(to_markdown(Block{CommandLines{{"run '```'"}}}, "f") == "````\nrun '```'\n````\n");
  CHECK(to_markdown(Block{Paragraph{"# no heading"}}, "f") == "\\# no heading\n");
  CHECK(escape_markup(std::string("a\x01") + "b") == "a b");
}

TEST_CASE("inline links lead to http(s), a place in the page or a relative path") {
  for (const char* address :
       {"https://a.org/b?c=d", "http://a.org", "#records", "data/x.json", "../README.md"})
    CHECK(may_link_to(address));
  for (const char* address :
       {"javascript:alert(1)", " javascript:x", "data:text/html,x", "", "a b", "x\"onclick"})
    CHECK_FALSE(may_link_to(address));
}

TEST_CASE("generated parts are replaced, and only they") {
  const Document document = small_document();
  const std::string text =
      "before\n<!-- generated: fig -->\nold\n<!-- /generated -->\nbetween\n"
      "<!-- generated: two -->\n<!-- /generated -->\nafter\n";
  const std::string filled = fill_generated_parts("README.md", text, document, "reports/figures");
  CHECK(filled.starts_with("before\n<!-- generated: fig -->\n\n![A &lt;figure>.](reports/figures/fig.svg)"));
  CHECK(contains(filled,
                 "<!-- /generated -->\nbetween\n<!-- generated: two -->\n\n- item\n\n<!-- /generated -->"));
  CHECK(filled.ends_with("after\n"));
  CHECK_FALSE(contains(filled, "old"));
  const std::string verdicts = "<!-- generated: verdicts -->\n<!-- /generated -->\n";
  CHECK(contains(fill_generated_parts("README.md", verdicts, document, "f"), "The records give no verdict."));
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
