// SPDX-License-Identifier: Apache-2.0
// What was measured of one kernel launch, and its JSON. Plain data without CUDA; absent parts are left out of
// the JSON, never written as zero.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "profiler/records/emulated_kernel.hpp"

namespace tilescope {

struct LaunchFacts {
  std::array<std::int64_t, 3> grid{1, 1, 1};           // CTAs
  std::array<std::int64_t, 3> block{1, 1, 1};          // threads
  std::optional<std::array<std::int64_t, 3>> cluster;  // CTAs
  std::optional<std::int64_t> registers;               // per thread
  std::optional<std::int64_t> shared_bytes;            // per CTA, static and dynamic
  std::optional<std::int64_t> local_bytes;             // per thread
  bool operator==(const LaunchFacts&) const = default;
};

/// Times of a run without counters.
struct KernelTime {
  std::vector<double> samples_s;
  /// Where the samples themselves were not kept.
  struct Summary {
    double median_s, min_s;
    std::int64_t samples;
    bool operator==(const Summary&) const = default;
  };
  std::optional<Summary> summary = std::nullopt;

  bool any() const { return !samples_s.empty() || summary; }
  double median_s() const;
  double min_s() const;
  bool operator==(const KernelTime&) const = default;
};

struct KernelMeasurement {
  std::string name;  // demangled
  LaunchFacts launch;
  std::map<std::string, double> counters;  // by CUPTI's name with rollup
  std::map<std::string, double> measured;  // metrics by name, computed from the counters
  std::optional<KernelTime> time;
  std::optional<EmulatedKernel> emulated = std::nullopt;  // where no device ran it
  bool operator==(const KernelMeasurement&) const = default;
};

/// Whole numbers are written as integers.
void to_json(nlohmann::ordered_json& json, const KernelMeasurement& kernel);
/// @throws BadInput naming the field for anything that to_json does not write
void from_json(const nlohmann::ordered_json& json, KernelMeasurement& kernel);

}  // namespace tilescope
