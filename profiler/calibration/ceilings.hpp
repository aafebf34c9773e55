// SPDX-License-Identifier: Apache-2.0
// What a device can do at best, measured: bandwidth at each boundary and arithmetic rates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/calibration/l2/l2_partitions.hpp"
#include "profiler/calibration/l2/l2_residency.hpp"
#include "profiler/calibration/noise_floor.hpp"

namespace tilescope {

struct MeasuredCeiling {
  std::string name;       // "dram_copy", "sm_l2_read", "fp16" ...
  std::string unit;       // "byte/s" or "flop/s"
  double per_second = 0;  // of the fastest sample: under sustained load power lowers the clock
  double median_per_second = 0;
  double noise = 0;        // relative standard deviation of the samples, 1.0 = 100 %
  double sm_clock_hz = 0;  // mean while it ran
  std::string method;      // what was run
};

/// The link between two GPUs of a host, at best: one of them moves so many bytes; rates are those of one
/// direction.
struct LinkCeiling {
  std::string engine;      // kLinkEngines
  bool both_ways = false;  // whether the other GPU does the same meanwhile
  int ctas = 0;            // of 512 threads; 0 for the copy engine
  std::int64_t bytes = 0;  // of one transfer
  double per_second = 0;   // bytes, of the fastest sample
  double median_per_second = 0;
  bool operator==(const LinkCeiling&) const = default;
};

inline constexpr const char* kSmLoads = "SM loads";
inline constexpr const char* kSmStores = "SM stores";
inline constexpr const char* kCopyEngine = "copy engine";

struct Ceilings {
  std::string device, architecture, driver;  // "NVIDIA H200", "sm_90", "13.0"
  std::vector<MeasuredCeiling> ceilings;
  std::int64_t l2_bytes = 0;            // as the driver has it
  std::vector<L2Residency> l2;          // empty where bytes cannot be counted
  L2Partitions l2_partitions;           // without groups where nobody looked
  std::vector<NoiseFloor> noise_floor;  // empty where bytes cannot be counted
  std::vector<LinkCeiling> links;       // empty with one GPU
  std::vector<std::string> left_out;    // with the reason
};

/// Between the first two GPUs; takes a few seconds and 512 MiB of each.
/// @throws MachineLacks without two that reach each other's memory
std::vector<LinkCeiling> measure_links();

enum class CeilingChoice : std::uint8_t { all, links };

/// Takes up to a minute and up to 4 GiB of device memory; of the links alone, a few seconds.
/// @throws MachineLacks without a device or in a build without CUDA, and for links alone without a link
Ceilings measure_ceilings(CeilingChoice choice = CeilingChoice::all);

}  // namespace tilescope
