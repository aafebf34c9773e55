// SPDX-License-Identifier: Apache-2.0
#include "gpu/emulator/ptx/lexer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tilescope::gpu::emulator::ptx {
namespace {

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%' || c == '.';
}

}  // namespace

void Lexer::skip_blanks() {
  const auto at = [&](std::size_t i) { return i < text.size() ? text[i] : '\0'; };
  while (place < text.size()) {
    if (at(place) == '/' && at(place + 1) == '/') {
      place = std::min(text.find('\n', place), text.size());
    } else if (at(place) == '/' && at(place + 1) == '*') {
      const std::size_t end = std::min(text.find("*/", place), text.size() - 2) + 2;
      for (; place < end; ++place) line += text[place] == '\n';
    } else if (const char c = text[place]; c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0') {
      line += c == '\n';
      ++place;
    } else {
      return;
    }
  }
}

void Lexer::advance() {
  skip_blanks();
  const std::size_t begin = place;
  if (place < text.size() && text[place] == '"') {
    place = std::min(text.find('"', place + 1), text.size() - 1) + 1;
  } else if (place < text.size() && in_word(text[place])) {
    while (place < text.size() &&
           (in_word(text[place]) ||
            (text.substr(place, 2) == "::" && place + 2 < text.size() && in_word(text[place + 2])))) {
      place += text[place] == ':' ? 2 : 1;
    }
  } else if (place < text.size()) {
    ++place;
  }
  token = {text.substr(begin, place - begin), line};
}

void Lexer::expect(std::string_view what) {
  if (!accept(what)) fail(fmt::format("'{}' expected", what));
}

void Lexer::skip_past(std::string_view what) {
  while (!token.is(what)) {
    if (token.text.empty()) fail(fmt::format("'{}' expected before the end", what));
    advance();
  }
  advance();
}

std::string_view Lexer::text_since(const Token& first) const {
  const char* const end = token.text.empty() ? text.data() + text.size() : token.text.data();
  std::string_view since(first.text.data(), static_cast<std::size_t>(end - first.text.data()));
  return since.substr(0, since.rfind(';') + 1);
}

void Lexer::fail(const std::string& message, const Token& at) const {
  const auto place_of = static_cast<std::size_t>(at.text.data() - text.data());
  const std::size_t begin = place_of == 0 ? 0 : text.rfind('\n', place_of - 1) + 1;  // npos + 1 is 0
  const std::size_t end = std::min(text.find('\n', place_of), text.size());
  throw std::runtime_error(fmt::format("PTX line {}: {} at '{}' in: {}", at.line, message, at.text,
                                       text.substr(begin, std::min<std::size_t>(end - begin, 200))));
}

}  // namespace tilescope::gpu::emulator::ptx
