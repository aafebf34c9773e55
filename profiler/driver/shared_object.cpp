// SPDX-License-Identifier: Apache-2.0
#include "profiler/driver/shared_object.hpp"

#include <dlfcn.h>

#include <utility>

namespace tilescope {

SharedObject::SharedObject(SharedObject&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

SharedObject& SharedObject::operator=(SharedObject&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

SharedObject::~SharedObject() {
  if (handle_) dlclose(handle_);
}

SharedObject SharedObject::open(const std::string& name, std::string* why) {
  // Once loaded a library stays: CUDA's libraries hold on to one another, and a second libcupti, loaded after
  // the first has gone, is taken for another tool.
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle && why) {
    const char* reason = dlerror();
    *why = reason ? reason : "unknown reason";
  }
  return SharedObject(handle);
}

SharedObject SharedObject::open_for_a_while(const std::string& name) {
  return SharedObject(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
}

SharedObject SharedObject::already_loaded(const std::string& name) {
  return SharedObject(dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD));
}

void* SharedObject::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

std::string SharedObject::path_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

}  // namespace tilescope
