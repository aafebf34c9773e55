// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/descales.hpp"

#include <charconv>
#include <iterator>
#include <optional>

#include "common/errors.hpp"
#include "common/quantity.hpp"

namespace tilescope {

std::string to_string(const Descale& descale) {
  switch (descale.from) {
    case Descale::From::random:
      return "random";
    case Descale::From::data:
      return "data";
    case Descale::From::given:
      return "given";
    default:
      break;
  }
  char text[32];  // whatever the locale
  const auto end = std::to_chars(text, std::end(text), descale.value, std::chars_format::general, 17).ptr;
  return {text, end};
}

Descale parse_descale(const std::string& field, const std::string& text) {
  for (const Descale::From from : {Descale::From::random, Descale::From::data, Descale::From::given}) {
    if (to_string(Descale{from}) == text) return {from};
  }
  const std::optional<Quantity> number = read_quantity(text);
  if (!number || !number->unit.empty() ||
      !(number->value >= kLeastDescale && number->value <= kMostDescale)) {
    throw BadInput(field, "'" + text + "'", "must be a number in 1e-6 ... 1e6, random or data");
  }
  return {Descale::From::constant, number->value};
}

std::string describe(const Descales& descales) {
  std::string text = "descales";
  for (const auto& [name, descale] : {std::pair{"q", descales.q}, {"k", descales.k}, {"v", descales.v}}) {
    if (descale != Descale{}) text += std::string(" ") + name + "=" + to_string(descale);
  }
  if (!descales.by_block()) return text;
  return text + " of " + std::to_string(descales.block.block_m) + "x" +
         std::to_string(descales.block.block_n);
}

}  // namespace tilescope
