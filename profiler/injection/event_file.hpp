// SPDX-License-Identifier: Apache-2.0
// What one process has to say, one JSON object a line, written as it happens: a process that is killed leaves
// everything up to its last whole line.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "profiler/records/kernel_measurement.hpp"

namespace tilescope {

/// How the counters of a context were collected.
struct CollectionFacts {
  std::string device;  // "NVIDIA H200"
  std::string chip;    // CUPTI's name: "GH100"
  std::string driver;  // version of CUDA that the driver supports, "13.0"
  // "none": each kernel ran once, between eviction sweeps; "kernel": CUPTI repeated each kernel for each
  // pass; "application": the command was repeated for each pass, each kernel between eviction sweeps.
  std::string replay;
  int passes = 0;
  std::string l2 = "cold";  // before each kernel; "warm": as the kernels before it left it; "replayed": as
                            // CUPTI's save and restore leave it
  bool operator==(const CollectionFacts&) const = default;
};

void to_json(nlohmann::ordered_json& json, const CollectionFacts& facts);
/// @throws BadInput naming the field for anything that to_json does not write
void from_json(const nlohmann::ordered_json& json, CollectionFacts& facts);

/// The file of this process in the request's folder. Writing never throws: the command must go on.
class EventFile {
 public:
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void collection(const CollectionFacts& facts);
  void kernel(const KernelMeasurement& kernel);
  void message(const std::string& sentence);
  /// The process came to its end and nothing is missing.
  void end();

 private:
  void write(const nlohmann::ordered_json& event);
  std::mutex mutex_;  // launches of several devices end at once
  int file_ = -1;
};

/// All that the files of a folder say.
struct Events {
  std::vector<CollectionFacts> collections;  // each once
  std::vector<KernelMeasurement> kernels;    // in order of launch within a process
  std::vector<std::string> messages;         // each once
  std::int64_t processes = 0;                // that used CUDA
  std::int64_t unfinished = 0;               // of these, those that said no end()
};

/// @throws MachineLacks if the folder cannot be read
Events read_events(const std::string& folder);

}  // namespace tilescope
