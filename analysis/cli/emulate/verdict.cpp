// SPDX-License-Identifier: Apache-2.0
// Whether a kernel is right, in words and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/cli/emulate/emulate.hpp"

namespace tilescope::cli {

ReferenceCheck check_reference(const LaunchFile& launch) {
  ReferenceCheck check;
  for (const ArrayArgument& array : launch.arrays) {
    if (!array.expected) continue;
    const Comparison result = compare(*array.format, array.buffer.bytes(), *array.expected, array.tolerance);
    check.right = check.right.value_or(true) && result.wrong == 0;
    check.text +=
        result.wrong == 0
            ? fmt::format("{}: all {} elements as expected, within {:g}\n", array.name, result.elements,
                          array.tolerance)
            : fmt::format("{}: {} of {} elements wrong, the first at {}: {:g} where {:g} was expected\n",
                          array.name, result.wrong, result.elements, result.first_wrong, result.got,
                          result.expected);
  }
  return check;
}

std::string verdict_json(const KernelMeasurement& kernel) {
  const EmulatedKernel& emulated = *kernel.emulated;
  const auto count = [&](const char* kind) {
    return std::ranges::count(emulated.findings, kind, &EmulatedFinding::kind);
  };
  nlohmann::ordered_json json{{"kernel", kernel.name}, {"completed", emulated.completed}};
  json["right"] = emulated.right ? nlohmann::ordered_json(*emulated.right) : nullptr;
  json["races"] = count("race");
  json["out_of_bounds"] = count("out of bounds");
  json["hangs"] = count("hang");
  json["uninitialised_reads"] = count("uninitialised");
  const double moved = kernel.measured.at("sm_l2_read_bytes") + kernel.measured.at("sm_l2_write_bytes");
  const auto must = static_cast<double>(emulated.must_read_bytes + emulated.must_write_bytes);
  json["sm_l2_bytes"] = static_cast<std::int64_t>(moved);
  json["must_bytes"] = emulated.must_read_bytes + emulated.must_write_bytes;
  json["bytes_over_must"] = must > 0 ? nlohmann::ordered_json(moved / must) : nullptr;
  if (kernel.measured.contains("dram_read_bytes")) {
    json["dram_bytes"] = static_cast<std::int64_t>(kernel.measured.at("dram_read_bytes") +
                                                   kernel.measured.at("dram_write_bytes"));
  }
  json["seconds"] = emulated.seconds;
  json["findings"] = nlohmann::ordered_json::array();
  for (const EmulatedFinding& finding : emulated.findings) {
    json["findings"].push_back({{"kind", finding.kind}, {"places", finding.places}, {"text", finding.text}});
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tilescope::cli
