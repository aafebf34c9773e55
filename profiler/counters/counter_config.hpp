// SPDX-License-Identifier: Apache-2.0
// The host half of CUPTI: turns counter names into what the device is to be programmed with, and its raw data
// into numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/counters/cupti_library.hpp"

namespace tilescope {

/// Owner of a CUPTI profiler host object, which knows the counters of one chip.
class CuptiHost {
 public:
  /// @param availability image of the device's counters, or empty to ask about the chip in general; must
  ///   outlive the host
  /// @throws CountersUnavailable, CuptiError
  CuptiHost(std::shared_ptr<const CuptiLibrary> library, const std::string& chip,
            const std::vector<std::uint8_t>& availability = {},
            CUpti_ProfilerType type = CUPTI_PROFILER_TYPE_RANGE_PROFILER);
  ~CuptiHost();
  CuptiHost(const CuptiHost&) = delete;
  CuptiHost& operator=(const CuptiHost&) = delete;

  CUpti_Profiler_Host_Object* get() const { return object_; }
  const CuptiLibrary& library() const { return *library_; }

 private:
  std::shared_ptr<const CuptiLibrary> library_;
  CUpti_Profiler_Host_Object* object_ = nullptr;
};

/// A list of counters made ready for a device: the image that programs it and the passes that it needs.
class CounterConfig {
 public:
  /// @param counters names with rollup: "dram__bytes_read.sum"
  /// @throws CuptiError if one of them is unknown to the chip
  CounterConfig(std::shared_ptr<const CuptiLibrary> library, const std::string& chip,
                std::vector<std::string> counters, const std::vector<std::uint8_t>& availability = {},
                CUpti_ProfilerType type = CUPTI_PROFILER_TYPE_RANGE_PROFILER);

  const std::vector<std::string>& counters() const { return counters_; }
  const std::vector<std::uint8_t>& image() const { return image_; }
  int passes() const { return passes_; }
  /// The names as CUPTI takes them; valid as long as this object.
  const char** names() const { return const_cast<const char**>(names_.data()); }

  /// Values of one range of decoded data, in the order of counters().
  std::vector<double> evaluate(const std::vector<std::uint8_t>& counter_data, std::size_t range) const;

 private:
  CuptiHost host_;
  std::vector<std::string> counters_;
  std::vector<const char*> names_;
  std::vector<std::uint8_t> image_;
  int passes_ = 0;
};

}  // namespace tilescope
