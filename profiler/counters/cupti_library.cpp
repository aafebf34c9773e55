// SPDX-License-Identifier: Apache-2.0
#include "profiler/counters/cupti_library.hpp"

#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "profiler/driver/library_search.hpp"
#include "profiler/driver/trial_call.hpp"

namespace tilescope {
namespace {

const std::vector<std::string>& names() {
  static const std::vector<std::string> all = {"libcupti.so.13", "libcupti.so.12"};
  return all;
}

/// What the caller or the environment asks for: a file or a folder.
std::string chosen(const std::string& path) {
  const char* named = std::getenv("TILESCOPE_CUPTI");
  return path.empty() && named ? named : path;
}

[[noreturn]] void cupti_lacks(const char* name) {
  throw MachineLacks(std::string("the libcupti that was found lacks ") + name +
                     ": it is older than CUDA 12.6; install a newer CUPTI or name one with TILESCOPE_CUPTI");
}

/// Without a driver each function of CUDA 13.2's CUPTI calls itself until the stack ends.
void require_answers(const CuptiLibrary& cupti) {
  if (SharedObject::open("libcuda.so.1")) return;
  const auto asks = [&cupti] {
    std::uint32_t version = 0;
    cupti.cuptiGetVersion(&version);
  };
  if (returns_in_child(asks)) return;
  throw MachineLacks(
      cupti.path() +
      " crashes where there is no NVIDIA driver, as CUDA 13.2's CUPTI does: install CUDA 13.0's "
      "(nvidia-cuda-cupti==13.0.*), or name a copy with TILESCOPE_CUPTI");
}

}  // namespace

std::vector<std::string> CuptiLibrary::candidates(const std::string& path) {
  const std::filesystem::path place = chosen(path);
  if (place.empty()) return library_candidates(names(), "cuda_cupti");
  std::error_code ignored;
  if (!std::filesystem::is_directory(place, ignored)) return {place.string()};
  std::vector<std::string> places;
  for (const std::string& name : names()) places.push_back((place / name).string());
  return places;
}

std::shared_ptr<const CuptiLibrary> CuptiLibrary::load(const std::string& path) {
  // A second copy in one process would know nothing of what the first has subscribed to.
  SharedObject object = chosen(path).empty() ? already_loaded(names()) : SharedObject();
  std::string tried;
  if (!object) object = open_first(candidates(path), tried);
  if (object) {
    const std::shared_ptr<const CuptiLibrary> cupti(new CuptiLibrary(std::move(object)));
    require_answers(*cupti);
    return cupti;
  }
  throw MachineLacks(
      "libcupti was not found (" + tried +
      "): install CUPTI with the CUDA toolkit or as the Python package nvidia-cuda-cupti, or name "
      "its file with TILESCOPE_CUPTI");
}

CuptiLibrary::CuptiLibrary(SharedObject object) : object_(std::move(object)) {
#define TILESCOPE_RESOLVE(name) \
  if (!object_.resolve(#name, this->name)) cupti_lacks(#name);
  TILESCOPE_CUPTI_FUNCTIONS(TILESCOPE_RESOLVE)
#undef TILESCOPE_RESOLVE
}

std::string CuptiLibrary::path() const {
  return SharedObject::path_of(reinterpret_cast<const void*>(cuptiGetVersion));
}

}  // namespace tilescope
