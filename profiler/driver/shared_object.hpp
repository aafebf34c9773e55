// SPDX-License-Identifier: Apache-2.0
// A library that is looked for while the program runs, so that the program starts where it is missing.
#pragma once

#include <string>

namespace tilescope {

/// Owner of a dlopen() handle; empty when nothing was found.
class SharedObject {
 public:
  SharedObject() = default;
  SharedObject(SharedObject&& other) noexcept;
  SharedObject& operator=(SharedObject&& other) noexcept;
  ~SharedObject();

  /// Opens `name`, a path or a bare name for the loader's own search. On failure the result is empty and
  /// `why`, if given, receives the loader's reason.
  static SharedObject open(const std::string& name, std::string* why = nullptr);
  /// The same, for a library that may be unloaded and loaded again.
  static SharedObject open_for_a_while(const std::string& name);
  /// The copy of `name` that this process has loaded already; empty if there is none.
  static SharedObject already_loaded(const std::string& name);

  explicit operator bool() const { return handle_ != nullptr; }
  /// Address of a symbol; nullptr if the library lacks it.
  void* symbol(const char* name) const;
  /// Points `function` at a symbol; false if the library lacks it.
  template <class Function>
  bool resolve(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(symbol(name));
    return function != nullptr;
  }
  /// Path of the file that holds `address`; empty if unknown.
  static std::string path_of(const void* address);

 private:
  explicit SharedObject(void* handle) : handle_(handle) {}
  void* handle_ = nullptr;
};

}  // namespace tilescope
