// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/page_placement.hpp"

#include <string>

#include "common/errors.hpp"

namespace tilescope {

std::string_view to_string(PagePlacement pages) {
  return pages == PagePlacement::random ? "random" : "contiguous";
}

PagePlacement parse_page_placement(std::string_view text) {
  if (text == "scattered") return PagePlacement::random;
  for (const auto pages : {PagePlacement::contiguous, PagePlacement::random}) {
    if (to_string(pages) == text) return pages;
  }
  throw BadInput("pages", std::string(text), "must be contiguous or random");
}

}  // namespace tilescope
