// SPDX-License-Identifier: Apache-2.0
#include "common/temporary_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/errors.hpp"

namespace tilescope {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::error_code failed;
  std::string name = (fs::temp_directory_path(failed) / "tilescope-XXXXXX").string();
  if (failed) throw MachineLacks("no place for temporary files: " + failed.message() + "; set TMPDIR to one");
  if (mkdtemp(name.data()) == nullptr) {
    throw MachineLacks("no temporary folder can be made as " + name + ": " + std::strerror(errno) +
                       "; set TMPDIR to another place");
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace tilescope
