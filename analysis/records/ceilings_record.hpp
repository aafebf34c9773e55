// SPDX-License-Identifier: Apache-2.0
// What `tilescope ceilings` measured of a machine, schema "tilescope.ceilings/1".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiler/calibration/ceilings.hpp"

namespace tilescope {

inline constexpr std::string_view kCeilingsSchema = "tilescope.ceilings/1";

struct CeilingsRecord {
  std::vector<std::string> argv;
  std::string when;
  Ceilings measured;
};

std::string to_json_text(const CeilingsRecord& record);
/// @param source what error messages call the text, usually its path
/// @throws BadInput naming the source on damaged JSON or another schema. Records may lack what the L2 keeps,
/// its partitions and the noise floor; of this the load, which then was kAsleep.
CeilingsRecord parse_ceilings_record(const std::string& source, std::string_view text);

}  // namespace tilescope
