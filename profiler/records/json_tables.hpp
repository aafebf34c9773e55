// SPDX-License-Identifier: Apache-2.0
// Tables in JSON: how a record that is to be kept stands in a tenth of its text. An array of objects may be
// written as
//
//   {"every": {"launch/block": [128, 1, 1]},        fields that all have, with this one value
//    "same": {"counters/dram__bytes_read.sum": "measured/dram_read_bytes"},  fields that are equal to another
//    "columns": ["name", "flops", {"column": "l2_curve", "columns": ["l2_bytes", "dram_read_bytes"]}],
//    "rows": [["forward", 4096, [[262144, 900], [524288, 600]]],
//             ["delta", 64, null]]}                 null: it lacks the field
//
// A name with slashes is a path through objects. A column of arrays of objects is a table for all rows, and
// each row holds its rows of it. Where cells come again and again, as the names of a process's kernels or the
// passes of a kernel do, {"column": "name", "values": ["gemm<...>", "softmax<...>"]} has each once, and rows
// their places, from 0.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>

namespace tilescope {

/// A table that stands for no objects; a reader adds the name of the file.
struct DamagedTable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `json` with every array of objects as a table; nothing is lost but the order of an object's keys.
nlohmann::ordered_json with_tables(const nlohmann::ordered_json& json);
/// The inverse; what holds no tables is left as it is.
/// @throws DamagedTable, which says what is wrong with it
nlohmann::ordered_json without_tables(nlohmann::ordered_json json);

/// Text of with_tables(): a row a line, and one a line for the rows of tables in rows, but no deeper. Without
/// indentation, which would be a thirtieth of it.
std::string table_text(const nlohmann::ordered_json& json);

}  // namespace tilescope
