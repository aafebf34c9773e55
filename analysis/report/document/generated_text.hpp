// SPDX-License-Identifier: Apache-2.0
// Text files, such as the README, that hold parts of a report between markers:
//
//   <!-- generated: NAME -->
//   ... replaced ...
//   <!-- /generated -->
#pragma once

#include <string>
#include <string_view>

#include "analysis/report/document/report_document.hpp"

namespace tilescope {

/// `text` with everything between its markers replaced by the section or figure of `document` that they name.
/// @param source what error messages call the text, usually its path
/// @param figure_folder how the text reaches the folder of the SVG files
/// @throws BadInput on a name that the document does not have, naming those it has, or an unpaired marker
std::string fill_generated_parts(const std::string& source, std::string_view text, const Document& document,
                                 std::string_view figure_folder);

}  // namespace tilescope
