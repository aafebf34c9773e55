// SPDX-License-Identifier: Apache-2.0
#include "common/memory_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "common/errors.hpp"

namespace tilescope {
namespace {

/// The number after `key` in a file of "key: number kB" lines, or nothing.
std::optional<std::int64_t> read_kibibytes(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::int64_t kibibytes = 0;
    if (word == key && file >> kibibytes) return kibibytes * 1024;
  }
  return std::nullopt;
}

/// The only number in a file, or nothing ("max" where there is no limit).
std::optional<std::int64_t> read_number(const char* path) {
  std::int64_t number = 0;
  if (std::ifstream(path) >> number) return number;
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> available_memory_bytes() {
  std::optional<std::int64_t> available = read_kibibytes("/proc/meminfo", "MemAvailable:");
  const std::optional<std::int64_t> limit = read_number("/sys/fs/cgroup/memory.max");
  const std::optional<std::int64_t> used = read_number("/sys/fs/cgroup/memory.current");
  if (limit && used)
    available = std::min(available.value_or(*limit), std::max<std::int64_t>(0, *limit - *used));
  return available;
}

void require_memory(std::int64_t bytes, const std::string& purpose, const std::string& remedy) {
  if (bytes <= kNeverScarceBytes) return;
  const std::optional<std::int64_t> available = available_memory_bytes();
  if (!available || bytes <= *available) return;
  throw MachineLacks(fmt::format("{} needs {:.3g} GB of memory and {:.3g} GB are available; {}", purpose,
                                 1e-9 * static_cast<double>(bytes), 1e-9 * static_cast<double>(*available),
                                 remedy));
}

}  // namespace tilescope
