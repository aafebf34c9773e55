// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/machine/measured_machine.hpp"

#include <fmt/format.h>

namespace tilescope {

Machine measured_machine(Machine machine, const CeilingsRecord& record) {
  machine.name += "-measured";
  machine.title = record.measured.device + ", ceilings measured " + record.when;
  for (const MeasuredCeiling& ceiling : record.measured.ceilings) {
    const Fact<double> fact{
        ceiling.per_second,
        fmt::format("tilescope ceilings, {}: {}; fastest run, mean SM clock of all {:.0f} MHz", record.when,
                    ceiling.method, 1e-6 * ceiling.sm_clock_hz),
        "measured"};
    if (ceiling.name == "dram_copy") machine.dram_bytes_per_second = fact;
    if (ceiling.name == "sm_l2_read") machine.l2_bytes_per_second = fact;
    if (ceiling.unit == "flop/s") machine.peak_flops_per_second[ceiling.name] = fact;
    if (ceiling.name == "fp8e4m3") machine.peak_flops_per_second["fp8e5m2"] = fact;
  }
  const std::int64_t half_kept = half_kept_bytes(record.measured.l2, kReadByAll);
  if (half_kept > 0) {
    const std::string source = fmt::format("tilescope ceilings, {}: ", record.when);
    machine.l2_bytes = {record.measured.l2_bytes, source + "as the driver has it", "measured"};
    machine.l2_effective_bytes = {
        half_kept, source + "the footprint of which half is kept when all SMs read it again and again",
        "measured"};
  }
  return machine;
}

}  // namespace tilescope
