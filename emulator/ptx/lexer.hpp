// SPDX-License-Identifier: Apache-2.0
// PTX text as words and signs. Comments are left out, but for where a compiler says that a statement of
// inline assembly begins and ends.
#pragma once

#include <string>
#include <string_view>

namespace tilescope::gpu::emulator::ptx {

/// A word (opcode, directive, name, number; "%tid.x" and "shared::cta" are one), a text in quotes, or one
/// sign. Empty at the end of the text.
struct Token {
  std::string_view text;
  int line = 0;
  int inline_asm = 0;  // number of the statement that it is part of; 0: none
  bool is(std::string_view what) const { return text == what; }
};

/// Text in one line, of characters that all can show: others are '?', and it ends after `most`.
std::string printable(std::string_view text, std::size_t most = 200);

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { advance(); }

  const Token& peek() const { return token_; }
  Token next() {
    const Token taken = token_;
    advance();
    return taken;
  }
  /// Takes the next token if it is this one.
  bool accept(std::string_view what) {
    if (!token_.is(what)) return false;
    advance();
    return true;
  }
  void expect(std::string_view what);
  /// Takes the rest of a line.
  void skip_line(int line);
  /// Takes everything up to and with `what`.
  void skip_past(std::string_view what);
  /// The text from a token's begin to that of the next one.
  std::string_view text_since(const Token& first) const;

  [[noreturn]] void fail(const std::string& message) const { fail(message, token_); }
  /// Throws with the line of a token and its text.
  [[noreturn]] void fail(const std::string& message, const Token& at) const;
  /// What fail() throws: line, message, token and the text of the line.
  std::string failure(const std::string& message, const Token& at) const;

 private:
  void advance();
  void skip_blanks();
  void note_inline_asm(std::string_view comment);

  std::string_view text_;
  std::size_t place_ = 0;
  int line_ = 1;
  int inline_asm_ = 0, inline_asms_ = 0;
  Token token_;
};

}  // namespace tilescope::gpu::emulator::ptx
