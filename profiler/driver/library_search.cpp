// SPDX-License-Identifier: Apache-2.0
#include "profiler/driver/library_search.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "common/errors.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;

fs::path environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The folder above the bin/ that holds the python3 a shell would start: where a virtual environment has its
/// packages, since its python3 is a link that must not be resolved.
fs::path python_prefix_on_path() {
  std::istringstream folders(environment("PATH").string());
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code ignored;
    if (!folder.empty() && fs::exists(fs::path(folder) / "python3", ignored)) {
      return fs::path(folder).parent_path();
    }
  }
  return {};
}

class Candidates {
 public:
  explicit Candidates(const std::vector<std::string>& names) : names_(names) {}

  void add(const std::string& place) {
    if (std::ranges::find(places_, place) == places_.end()) places_.push_back(place);
  }
  void add_folder(const fs::path& folder) {
    std::error_code ignored;
    for (const std::string& name : names_) {
      if (fs::exists(folder / name, ignored)) add((folder / name).string());
    }
  }
  void add_toolkit(const fs::path& root) {
    if (root.empty()) return;
    for (const char* folder : {"lib64", "extras/CUPTI/lib64", "lib"}) add_folder(root / folder);
  }
  void add_python(const fs::path& prefix, const std::string& package) {
    std::error_code failed;
    if (prefix.empty()) return;
    for (const auto& entry : fs::directory_iterator(prefix / "lib", failed)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        const fs::path nvidia = entry.path() / packages / "nvidia";
        add_folder(nvidia / "cu13" / "lib");
        add_folder(nvidia / package / "lib");
      }
    }
  }
  std::vector<std::string> take() { return std::move(places_); }

 private:
  const std::vector<std::string>& names_;
  std::vector<std::string> places_;
};

}  // namespace

std::vector<std::string> library_candidates(const std::vector<std::string>& names,
                                            const std::string& python_package) {
  Candidates candidates(names);
  candidates.add_toolkit(environment("CUDA_HOME"));
  candidates.add_toolkit(environment("CUDA_PATH"));
  candidates.add_toolkit("/usr/local/cuda");
  for (const std::string& name : names) candidates.add(name);
  candidates.add_python(environment("VIRTUAL_ENV"), python_package);
  candidates.add_python(python_prefix_on_path(), python_package);
  return candidates.take();
}

SharedObject already_loaded(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (SharedObject object = SharedObject::already_loaded(name)) return object;
  }
  return {};
}

SharedObject open_first(const std::vector<std::string>& places, std::string& tried) {
  for (const std::string& place : places) {
    std::string why;
    if (SharedObject object = SharedObject::open(place, &why)) return object;
    tried += (tried.empty() ? "" : "; ") + why;
  }
  return {};
}

SharedObject find_library(const std::vector<std::string>& names, const std::string& python_package) {
  if (SharedObject object = already_loaded(names)) return object;
  std::string tried;
  if (SharedObject object = open_first(library_candidates(names, python_package), tried)) return object;
  throw MachineLacks(names.front() + " was not found (" + tried + ")");
}

}  // namespace tilescope
