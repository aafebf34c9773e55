// SPDX-License-Identifier: Apache-2.0
// What follows from a machine's facts, and from what was measured of it. Its files are in machine_file.cpp.
#include "analysis/model/machine/machine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/records/ceilings_record.hpp"

namespace tilescope {

ProgressRates Machine::progress_on(MathUnit unit) const {
  const auto own = cta_progress.find(std::string(to_string(unit)));
  if (own != cta_progress.end()) return own->second.value;
  const auto usual = cta_progress.find(std::string(to_string(MathUnit::cuda_cores)));
  return {.clock_cv = usual == cta_progress.end() ? 0 : usual->second.value.clock_cv};
}

bool Machine::knows_progress_on(std::optional<MathUnit> unit) const {
  return unit && cta_progress.contains(std::string(to_string(*unit)));
}

std::optional<int> Machine::compute_capability() const {
  // CUDA C++ Programming Guide, "Compute Capabilities"
  constexpr std::pair<std::string_view, int> kOfChips[] = {{"GA100", 80},  {"GA102", 86},  {"AD102", 89},
                                                           {"GH100", 90},  {"GB100", 100}, {"GB202", 120},
                                                           {"GB203", 120}, {"GB205", 120}};
  for (const auto& [name, capability] : kOfChips) {
    if (chip == name) return capability;
  }
  return std::nullopt;
}

std::optional<SplitL2Shape> Machine::split_l2() const {
  if (!l2_ways || !sm_groups) return std::nullopt;
  SplitL2Shape shape{l2_bytes.value / kL2Partitions, l2_ways->value, sm_groups->value};
  if (l2_dirty_ways) shape.dirty_ways = l2_dirty_ways->value;
  return shape;
}

std::int64_t Machine::resident_ctas_per_sm(std::int64_t shared_bytes) const {
  // CUDA keeps 1 KiB of shared memory for itself in each CTA on these chips (compute capability 8.0 and
  // later).
  constexpr std::int64_t kReservedBytes = 1024;
  const std::int64_t by_shared = shared_bytes_per_sm.value / (shared_bytes + kReservedBytes);
  return std::clamp<std::int64_t>(by_shared, 1, ctas_per_sm.value);
}

std::optional<double> Machine::exponentials_per_second() const {
  if (!exponentials_per_clock_per_sm) return std::nullopt;
  return static_cast<double>(exponentials_per_clock_per_sm->value * sm_count.value) * sm_clock_hz.value;
}

std::optional<double> Machine::peak_flops(ElementType type) const {
  const auto found = peak_flops_per_second.find(std::string(to_string(type)));
  if (found == peak_flops_per_second.end()) return std::nullopt;
  return found->second.value;
}

std::optional<Machine> machine_of_device(const std::string& device) {
  if (device.empty()) return std::nullopt;
  if (device == "NVIDIA H100 80GB HBM3") return load_machine("h100-sxm");  // as the driver calls that of SXM5
  for (const std::string& name : machine_names()) {
    if (name.ends_with(kMeasuredSuffix)) continue;
    Machine machine = load_machine(name);
    if (machine.title.starts_with(device)) return machine;
  }
  return std::nullopt;
}

double Machine::tensor_flops_per_clock() const {
  if (tensor_flops_per_clock_per_sm) return tensor_flops_per_clock_per_sm->value;
  const double sms = static_cast<double>(sm_count.value);
  const auto fp16 = peak_flops(ElementType::fp16);
  return (fp16 ? fp16 : peak_flops(ElementType::bf16)).value_or(0) / (sms * sm_clock_hz.value);
}

double Machine::clock_at(double tensor_share) const {
  const double boost = boost_hz();
  return boost - (boost - tensor_clock_hz.value_or(boost_clock_hz.value_or(sm_clock_hz)).value) *
                     std::min(1.0, tensor_share);
}

Machine with_measured_ceilings(Machine machine) {
  const std::vector<std::string> names = machine_names();
  const std::string name = machine.name + std::string(kMeasuredSuffix);
  if (std::ranges::find(names, name) == names.end()) return machine;
  const Machine measured = load_machine(name);
  machine.dram_bytes_per_second = measured.dram_bytes_per_second;
  if (measured.l2_bytes_per_second) machine.l2_bytes_per_second = measured.l2_bytes_per_second;
  for (const auto& [type, peak] : measured.peak_flops_per_second) machine.peak_flops_per_second[type] = peak;
  return machine;
}

namespace {

template <typename Value>
Fact<Value> assumed_as(const Fact<Value>& known, const Machine& of) {
  return {known.value, fmt::format("as {}, of the same chip. {}", of.name, known.source), "assumed"};
}

/// Takes what is not known of a machine from one of the same chip.
template <typename Fact>
void take_over(std::optional<Fact>& fact, const std::optional<Fact>& known, const Machine& from) {
  if (!fact && known) fact = assumed_as(*known, from);
}

/// Adds the partitions that were measured to a machine whose file has none, or those of another device, where
/// another machine of its chip says how the L2 is built.
void add_partitions(Machine& machine, const CeilingsRecord& record) {
  const std::vector<SmGroup>& groups = record.measured.l2_partitions.groups;
  const bool split = sms_of_partitions(record.measured.l2_partitions).size() == kL2Partitions;
  const bool stated = machine.sm_groups && machine.sm_groups->kind != "assumed";
  if (stated || !split) return;
  for (const std::string& name : machine_names()) {
    const Machine other = load_machine(name);
    if (other.chip != machine.chip || !other.split_l2()) continue;
    machine.sm_groups = {
        groups, fmt::format("tilescope ceilings, {}: latencies of atomics, and the SMs of CTAs", record.when),
        "measured"};
    take_over(machine.l2_ways, other.l2_ways, other);
    take_over(machine.l2_dirty_ways, other.l2_dirty_ways, other);
    for (const auto& [unit, rates] : other.cta_progress) {
      machine.cta_progress.try_emplace(unit, assumed_as(rates, other));
    }
    return;
  }
}

}  // namespace

Machine measured_machine(Machine machine, const CeilingsRecord& record) {
  machine.name += kMeasuredSuffix;
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
    add_partitions(machine, record);
  }
  return machine;
}

}  // namespace tilescope
