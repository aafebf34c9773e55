// SPDX-License-Identifier: Apache-2.0
// JSON schemas (draft 2020-12) of the files that have a list of fields.
#pragma once

#include "profiler/records/json_fields.hpp"

namespace tilescope {

Json run_record_schema();
Json ceilings_record_schema();
Json distributed_record_schema();
Json diff_record_schema();
Json tile_table_schema();
Json machine_schema();  // of a file that stands alone

}  // namespace tilescope
