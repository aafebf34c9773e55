// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/counted_causes.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace tilescope {
namespace {

std::optional<std::int64_t> metric(const std::map<std::string, double>& metrics, const char* name) {
  const auto found = metrics.find(name);
  if (found == metrics.end()) return std::nullopt;
  return std::llround(found->second);
}

}  // namespace

std::vector<NamedCause> counted_causes(const std::map<std::string, double>& metrics,
                                       const ClosedFormBytes& said) {
  using enum CauseKind;
  std::vector<NamedCause> causes;
  const auto add = [&causes](CauseKind kind, const char* name, const char* metric_name, std::int64_t bytes,
                             bool reads) {
    if (bytes != 0) causes.push_back({kind, name, metric_name, bytes, reads});
  };
  const auto value = [&metrics](const char* name) { return metric(metrics, name).value_or(0); };
  std::int64_t spilled = value("local_store_bytes");
  const auto stored = metric(metrics, "store_bytes"), asked = metric(metrics, "stored_data_bytes");
  const auto in_sectors = metric(metrics, "global_store_bytes");
  if (!in_sectors && stored && asked) {  // a record without the counters that tell what L1 merged
    spilled = std::min(spilled, std::max<std::int64_t>(0, *stored - *asked));
  }
  add(spills, "spills", "local_store_bytes", spilled, false);
  if (in_sectors && asked) {
    add(partial_sectors, "partly written sectors", "global_store_bytes - stored_data_bytes",
        *in_sectors - *asked, false);
    // An identity: merged_store_bytes is what plain stores ask for less the counter that sm_l2_write_bytes
    // takes them from, so that this counter cancels in what is left over.
    add(partial_sectors, "sectors merged in L1", "-merged_store_bytes", -value("merged_store_bytes"), false);
  } else if (stored && asked && *stored - spilled > *asked) {
    add(partial_sectors, "partly written sectors", "store_bytes - local_store_bytes - stored_data_bytes",
        *stored - spilled - *asked, false);
  }
  const auto beyond = [&value](const char* name, std::int64_t words) {
    return std::max<std::int64_t>(0, value(name) - words);
  };
  add(atomics, "atomics", "atomic_write_bytes", beyond("atomic_write_bytes", said.word_write_bytes), false);
  add(spills, "spills read back", "local_reload_bytes", value("local_reload_bytes"), true);
  add(atomics, "atomics", "atomic_read_bytes", beyond("atomic_read_bytes", said.word_read_bytes), true);
  return causes;
}

std::int64_t sum_of(const std::vector<NamedCause>& causes, bool reads) {
  std::int64_t bytes = 0;
  for (const NamedCause& cause : causes) bytes += cause.reads == reads ? cause.bytes : 0;
  return bytes;
}

}  // namespace tilescope
