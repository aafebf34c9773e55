// SPDX-License-Identifier: Apache-2.0
#include "common/installed_files.hpp"

#include <dlfcn.h>
#include <link.h>

namespace tilescope {
namespace {

/// The program, or the shared library, that this code was linked into.
std::filesystem::path this_file() {
  Dl_info info{};
  void* map = nullptr;
  const auto address = reinterpret_cast<const void*>(&installed_file);
  if (dladdr1(address, &info, &map, RTLD_DL_LINKMAP) != 0 && map != nullptr) {
    const char* const library = static_cast<const link_map*>(map)->l_name;  // empty for the program
    if (library != nullptr && *library != '\0') return std::filesystem::absolute(library);
  }
  std::error_code failed;
  return std::filesystem::read_symlink("/proc/self/exe", failed);
}

}  // namespace

std::filesystem::path installed_file(std::string_view relative) {
  constexpr int kMostSteps = 3;  // bin/, lib/, lib/x86_64-linux-gnu/ or a Python package
  const std::filesystem::path folder = this_file().parent_path();
  std::filesystem::path prefix = folder;
  std::error_code ignored;
  for (int step = 0; step < kMostSteps; ++step) {
    if (std::filesystem::exists(prefix / relative, ignored)) return prefix / relative;
    prefix = prefix.parent_path();
  }
  return folder.parent_path() / relative;
}

}  // namespace tilescope
