// SPDX-License-Identifier: Apache-2.0
#include "profiler/cupti_library.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace tilescope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12"};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void add_folder(std::vector<std::string>& places, const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : kNames) {
    if (fs::exists(folder / name, ignored)) places.push_back((folder / name).string());
  }
}

void add_toolkit(std::vector<std::string>& places, const fs::path& root) {
  if (root.empty()) return;
  for (const char* folder : {"lib64", "extras/CUPTI/lib64", "lib"}) add_folder(places, root / folder);
}

/// NVIDIA's Python packages: cu13 holds CUDA 13's libraries together, cuda_cupti is CUDA 12's package.
void add_python_prefix(std::vector<std::string>& places, const fs::path& prefix) {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(prefix / "lib", failed)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const fs::path nvidia = entry.path() / packages / "nvidia";
      add_folder(places, nvidia / "cu13" / "lib");
      add_folder(places, nvidia / "cuda_cupti" / "lib");
    }
  }
}

/// The folder above the bin/ that holds the python3 a shell would start: where a virtual environment has its
/// packages, since its python3 is a link that must not be resolved.
fs::path python_prefix_on_path() {
  std::istringstream folders(environment("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code ignored;
    if (!folder.empty() && fs::exists(fs::path(folder) / "python3", ignored)) {
      return fs::path(folder).parent_path();
    }
  }
  return {};
}

template <class Function>
void resolve(const SharedObject& object, const char* name, Function& function) {
  function = reinterpret_cast<Function>(object.symbol(name));
  if (function) return;
  throw MachineLacks(std::string("the libcupti that was found lacks ") + name +
                     ": it is older than CUDA 12.6; install a newer CUPTI or name one with TILESCOPE_CUPTI");
}

}  // namespace

std::vector<std::string> CuptiLibrary::candidates(const std::string& path) {
  const std::string chosen = path.empty() ? environment("TILESCOPE_CUPTI") : path;
  std::vector<std::string> places;
  if (!chosen.empty()) {
    std::error_code ignored;
    if (!fs::is_directory(chosen, ignored)) return {chosen};
    for (const char* name : kNames) places.push_back((fs::path(chosen) / name).string());
    return places;
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) add_toolkit(places, environment(variable));
  add_toolkit(places, "/usr/local/cuda");
  for (const char* name : kNames) places.push_back(name);
  for (const fs::path& prefix : {fs::path(environment("VIRTUAL_ENV")), python_prefix_on_path()}) {
    if (!prefix.empty()) add_python_prefix(places, prefix);
  }
  const auto repeated = [&](auto place) { return std::find(places.begin(), place, *place) != place; };
  for (auto place = places.begin(); place != places.end();) {
    place = repeated(place) ? places.erase(place) : place + 1;
  }
  return places;
}

std::shared_ptr<const CuptiLibrary> CuptiLibrary::load(const std::string& path) {
  const bool chosen = !path.empty() || !environment("TILESCOPE_CUPTI").empty();
  if (!chosen) {
    // A second copy in one process would know nothing of what the first has subscribed to.
    for (const char* name : kNames) {
      if (SharedObject object = SharedObject::already_loaded(name)) {
        return std::shared_ptr<const CuptiLibrary>(new CuptiLibrary(std::move(object)));
      }
    }
  }
  std::string tried;
  for (const std::string& place : candidates(path)) {
    std::string why;
    if (SharedObject object = SharedObject::open(place, &why)) {
      return std::shared_ptr<const CuptiLibrary>(new CuptiLibrary(std::move(object)));
    }
    tried += (tried.empty() ? "" : "; ") + why;
  }
  throw MachineLacks(
      "libcupti was not found (" + tried +
      "): install CUPTI with the CUDA toolkit or as the Python package nvidia-cuda-cupti, or name "
      "its file with TILESCOPE_CUPTI");
}

CuptiLibrary::CuptiLibrary(SharedObject object) : object_(std::move(object)) {
#define TILESCOPE_RESOLVE(name) resolve(object_, #name, this->name);
  TILESCOPE_CUPTI_FUNCTIONS(TILESCOPE_RESOLVE)
#undef TILESCOPE_RESOLVE
}

std::string CuptiLibrary::path() const {
  return SharedObject::path_of(reinterpret_cast<const void*>(cuptiGetVersion));
}

std::uint32_t CuptiLibrary::api_version() const {
  std::uint32_t version = 0;
  check_cupti(cuptiGetVersion(&version), "cuptiGetVersion");
  return version;
}

}  // namespace tilescope
