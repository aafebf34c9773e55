// SPDX-License-Identifier: Apache-2.0
#include "emulator/ptx/lexer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tilescope::gpu::emulator::ptx {
namespace {

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%' || c == '.';
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  std::string line;
  for (const char c : text.substr(0, most)) {
    const bool is_blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!is_blank) line += c > ' ' && c < 127 ? c : '?';
    if (is_blank && !line.empty() && line.back() != ' ') line += ' ';
  }
  return line;
}

void Lexer::note_inline_asm(std::string_view comment) {
  if (comment.starts_with("// begin inline asm")) inline_asm_ = ++inline_asms_;
  if (comment.starts_with("// end inline asm")) inline_asm_ = 0;
}

void Lexer::skip_blanks() {
  const auto at = [&](std::size_t i) { return i < text_.size() ? text_[i] : '\0'; };
  while (place_ < text_.size()) {
    if (at(place_) == '/' && at(place_ + 1) == '/') {
      const std::size_t begin = place_;
      place_ = std::min(text_.find('\n', place_), text_.size());
      note_inline_asm(text_.substr(begin, place_ - begin));
    } else if (at(place_) == '/' && at(place_ + 1) == '*') {
      const std::size_t end = std::min(text_.find("*/", place_ + 2), text_.size() - 2) + 2;
      for (; place_ < end; ++place_) line_ += text_[place_] == '\n';
    } else if (const char c = text_[place_]; c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0') {
      line_ += c == '\n';
      ++place_;
    } else {
      return;
    }
  }
}

void Lexer::advance() {
  skip_blanks();
  const std::size_t begin = place_;
  if (place_ < text_.size() && text_[place_] == '"') {
    place_ = std::min(text_.find('"', place_ + 1), text_.size() - 1) + 1;
  } else if (place_ < text_.size() && in_word(text_[place_])) {
    // Directives end where the next begins: `.reg.b32`.
    const bool is_directive = text_[place_] == '.';
    while (place_ < text_.size() && !(is_directive && place_ > begin && text_[place_] == '.') &&
           (in_word(text_[place_]) ||
            (text_.substr(place_, 2) == "::" && place_ + 2 < text_.size() && in_word(text_[place_ + 2])))) {
      place_ += text_[place_] == ':' ? 2 : 1;
    }
  } else if (place_ < text_.size()) {
    ++place_;
  }
  token_ = {text_.substr(begin, place_ - begin), line_, inline_asm_};
}

void Lexer::expect(std::string_view what) {
  if (!accept(what)) fail(fmt::format("'{}' expected", what));
}

void Lexer::skip_line(int line) {
  while (token_.line == line && !token_.text.empty()) advance();
}

void Lexer::skip_past(std::string_view what) {
  while (!token_.is(what)) {
    if (token_.text.empty()) fail(fmt::format("'{}' expected before the end", what));
    advance();
  }
  advance();
}

std::string_view Lexer::text_since(const Token& first) const {
  const char* const end = token_.text.empty() ? text_.data() + text_.size() : token_.text.data();
  std::string_view since(first.text.data(), static_cast<std::size_t>(end - first.text.data()));
  return since.substr(0, since.rfind(';') + 1);
}

void Lexer::fail(const std::string& message, const Token& at) const {
  throw std::runtime_error(failure(message, at));
}

std::string Lexer::failure(const std::string& message, const Token& at) const {
  const auto place_of = static_cast<std::size_t>(at.text.data() - text_.data());
  const std::size_t begin = place_of == 0 ? 0 : text_.rfind('\n', place_of - 1) + 1;  // npos + 1 is 0
  const std::size_t end = std::min(text_.find('\n', place_of), text_.size());
  return fmt::format("PTX line {}: {} at '{}' in: {}", at.line, message, printable(at.text, 60),
                     printable(text_.substr(begin, end - begin)));
}

}  // namespace tilescope::gpu::emulator::ptx
