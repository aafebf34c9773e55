// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/roofline_subject.hpp"

#include <algorithm>

namespace tilescope {
namespace {

constexpr std::string_view kMeasuredSuffix = "-measured";

std::optional<std::int64_t> total(const std::optional<ReadWriteBytes>& bytes) {
  return bytes ? std::optional(bytes->total()) : std::nullopt;
}

std::optional<Machine> machine_behind(const RunSummary& run) {
  if (const auto simulated = machine_of(run)) return simulated;
  const auto& device = run.record->machine.name;
  return run.machine_model.empty() && device ? machine_of_device(*device) : std::nullopt;
}

}  // namespace

std::optional<Machine> machine_of_device(const std::string& device) {
  for (const std::string& name : machine_names()) {
    if (name.ends_with(kMeasuredSuffix)) continue;
    Machine machine = load_machine(name);
    if (machine.title.starts_with(device)) return machine;
  }
  return std::nullopt;
}

std::optional<RunCeilings> run_ceilings(const RunSummary& run) {
  const std::optional<Machine> machine = machine_behind(run);
  if (!machine) return std::nullopt;
  const ElementType dtype = run.problem().dtype;
  RunCeilings ceilings{machine->title, ceilings_of(*machine, dtype), {}};
  const std::string measured = machine->name + std::string(kMeasuredSuffix);
  const std::vector<std::string> names = machine_names();
  if (std::find(names.begin(), names.end(), measured) != names.end()) {
    ceilings.measured = ceilings_of(load_machine(measured), dtype);
    std::erase_if(ceilings.measured, [](const Ceiling& ceiling) { return !ceiling.measured; });
  }
  return ceilings;
}

std::optional<double> RooflineSubject::intensity(double amount, CeilingKind boundary) const {
  const std::optional<double> bytes = work.amount(boundary);
  if (!bytes || *bytes == 0) return std::nullopt;
  return amount / *bytes;
}

std::optional<RooflineSubject> roofline_subject(const RunSummary& run, const RunCeilings& ceilings) {
  RooflineSubject subject{&run,
                          {run.useful_flops, {}, {}, run.exponentials},
                          run.measured_dram.has_value(),
                          0,
                          run.median_seconds.has_value(),
                          ""};
  subject.work.sm_l2_bytes = total(run.measured_sm_l2 ? run.measured_sm_l2 : run.closed_form);
  subject.work.dram_bytes = total(run.measured_dram ? run.measured_dram : run.simulated_dram);
  const Roofline reach = roofline(subject.work, firmest(ceilings.stated, ceilings.measured));
  subject.limit = reach.limit;
  subject.seconds = run.median_seconds.value_or(reach.least_seconds.value_or(0));
  if (subject.seconds <= 0) return std::nullopt;
  return subject;
}

}  // namespace tilescope
