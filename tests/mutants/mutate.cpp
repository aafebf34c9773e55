// SPDX-License-Identifier: Apache-2.0
// Makes the sources of a program of mutants: copies of production sources in which each piece of text that a
// mutant replaces becomes a choice at run time, so that one build serves all mutants. Fails, with the
// mutant's name, where the text is no longer found as often as the mutant says. Usage: mutate SOURCE_FOLDER
// OUTPUT_FOLDER FILE.mutants...   (their form: README.md here)
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

/// One piece of text that one mutant replaces.
struct Edit {
  int mutant = 0;  // from 1
  std::string file, before, after;
  int occurrence = 1, occurrences = 1;
};

struct Mutant {
  std::string name, what, by;
  std::vector<std::string> at;
  std::string needs;
};

struct Mutants {
  std::vector<Mutant> list;
  std::vector<Edit> edits;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)); }

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Leaves a file that is right already alone, so that nothing is compiled again for it.
void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  if (!fs::exists(path) || read_text(path) != text) std::ofstream(path, std::ios::binary) << text;
}

void read_mutants(const fs::path& path, Mutants& mutants) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const auto fail = [&](const char* why) -> void {
      throw std::runtime_error(path.string() + ":" + std::to_string(number) + ": " + why);
    };
    const std::size_t space = line.find(' ');
    const std::string word = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (line.empty() || word.starts_with('#')) continue;
    if (word == "mutant") {
      const std::size_t colon = rest.find(": ");
      if (colon == std::string::npos) fail("expected: mutant NAME: WHAT GOES WRONG");
      mutants.list.push_back({rest.substr(0, colon), rest.substr(colon + 2), "", {}, ""});
      continue;
    }
    if (mutants.list.empty()) fail("expected a mutant first");
    Mutant& mutant = mutants.list.back();
    const int index = static_cast<int>(mutants.list.size());
    const bool has_edit = !mutants.edits.empty() && mutants.edits.back().mutant == index;
    if (word == "at") {
      mutant.at.push_back(rest);
    } else if (word == "by") {
      mutant.by = rest;
    } else if (word == "needs") {
      mutant.needs = rest;
    } else if (word == "in") {
      Edit& edit = mutants.edits.emplace_back();
      std::istringstream(rest) >> edit.file;
      edit.mutant = index;
    } else if (!has_edit) {
      fail("expected: in FILE");
    } else if (word == "occurrence") {
      std::string of;
      std::istringstream(rest) >> mutants.edits.back().occurrence >> of >> mutants.edits.back().occurrences;
    } else if (word == "-") {
      mutants.edits.back().before += rest + "\n";
    } else if (word == "+") {
      mutants.edits.back().after += rest + "\n";
    } else {
      fail("no such word");
    }
  }
}

/// Where `text` has the edit's piece, white space aside: [begin, end).
struct Place {
  std::size_t begin, end;
  const Edit* edit;
};
Place find_place(const std::string& text, const Edit& edit, const std::string& name) {
  std::string dense, wanted;
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_space(text[i])) continue;
    dense += text[i];
    positions.push_back(i);
  }
  std::copy_if(edit.before.begin(), edit.before.end(), std::back_inserter(wanted),
               [](char c) { return !is_space(c); });
  if (wanted.empty()) throw std::runtime_error(name + ": replaces nothing in " + edit.file);
  std::vector<Place> places;
  for (std::size_t at = dense.find(wanted); at != std::string::npos; at = dense.find(wanted, at + 1)) {
    const std::size_t begin = positions[at], end = positions[at + wanted.size() - 1] + 1;
    const bool inside_a_word = (begin > 0 && is_word(text[begin]) && is_word(text[begin - 1])) ||
                               (end < text.size() && is_word(text[end - 1]) && is_word(text[end]));
    if (!inside_a_word) places.push_back({begin, end, &edit});
  }
  if (places.size() != static_cast<std::size_t>(edit.occurrences)) {
    throw std::runtime_error("mutant " + name + ": " + edit.file + " has its text " +
                             std::to_string(places.size()) + " times, not " +
                             std::to_string(edit.occurrences) + ":\n" + edit.before);
  }
  return places.at(static_cast<std::size_t>(edit.occurrence - 1));
}

std::string chosen(const Edit& edit) {
  return "::tilescope::mutant_active(" + std::to_string(edit.mutant) + ")";
}

/// text[begin, end) with its choices. Places that begin first come first, of those the longest: what lies
/// within another is a choice within what stands there without a mutant.
std::string render(const std::string& text, std::size_t begin, std::size_t end,
                   std::vector<Place>::const_iterator& next, std::vector<Place>::const_iterator last) {
  std::string out;
  while (next != last && next->begin < end) {
    const Place place = *next;
    if (place.end > end) throw std::runtime_error("texts of mutants overlap in " + place.edit->file);
    std::vector<const Edit*> edits;
    for (; next != last && next->begin == place.begin && next->end == place.end; ++next)
      edits.push_back(next->edit);
    out += text.substr(begin, place.begin - begin);
    const bool statement = text[place.end - 1] == ';' || text[place.end - 1] == '}';
    out += statement ? "{ " : "(";
    for (const Edit* edit : edits) {
      out += statement ? "if (" + chosen(*edit) + ") {\n" + edit->after + "} else "
                       : chosen(*edit) + " ? (" + edit->after + ") : ";
    }
    const std::string original = render(text, place.begin, place.end, next, last);
    out += statement ? "{ " + original + " } }" : "(" + original + "))";
    begin = place.end;
  }
  return out + text.substr(begin, end - begin);
}

void write_sources(const fs::path& source, const fs::path& output, const Mutants& mutants) {
  std::map<std::string, std::vector<const Edit*>> by_file;
  for (const Edit& edit : mutants.edits) by_file[edit.file].push_back(&edit);
  for (const auto& [file, edits] : by_file) {
    const std::string text = read_text(source / file);
    std::vector<Place> places;
    for (const Edit* edit : edits) {
      places.push_back(
          find_place(text, *edit, mutants.list[static_cast<std::size_t>(edit->mutant - 1)].name));
    }
    std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    auto next = places.cbegin();
    write_text(output / file, "#include \"tests/mutants/active_mutant.hpp\"\n#line 1 \"" +
                                  (source / file).string() + "\"\n" +
                                  render(text, 0, text.size(), next, places.cend()));
  }
}

std::string raw_literal(std::string_view text) { return "R\"~(" + std::string(text) + ")~\""; }

void write_list(const fs::path& path, const Mutants& mutants) {
  std::string text;
  for (const Mutant& mutant : mutants.list) {
    text += "{" + raw_literal(mutant.name) + ", " + raw_literal(mutant.what) + ", " + raw_literal(mutant.by) +
            ", {";
    for (const std::string& at : mutant.at) text += raw_literal(at) + ", ";
    text += "}, " + raw_literal(mutant.needs) + "},\n";
  }
  write_text(path, text);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) throw std::runtime_error("usage: mutate SOURCE_FOLDER OUTPUT_FOLDER FILE.mutants...");
  Mutants mutants;
  for (int i = 3; i < argc; ++i) read_mutants(argv[i], mutants);
  write_sources(fs::canonical(argv[1]), argv[2], mutants);
  write_list(fs::path(argv[2]) / "tests/mutants/mutant_list.inc", mutants);
} catch (const std::exception& error) {
  std::cerr << "mutate: " << error.what() << '\n';
  return 1;
}
