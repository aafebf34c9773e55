// SPDX-License-Identifier: Apache-2.0
// `emulate` in the program that holds no emulator.
#include <unistd.h>

#include <vector>

#include "analysis/cli/emulate/emulate_arguments.hpp"
#include "common/errors.hpp"
#include "common/installed_files.hpp"

namespace tilescope::cli {

int run_emulate(const EmulateArguments&, const CommandContext& context) {
  const std::string program = installed_file("bin/tilescope-emulate").string();
  std::vector<std::string> words = context.argv;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw MachineLacks(
      "there is no " + program +
      ", which emulates: ./tilescope emulate builds it, and by hand the target tilescope_emulate");
}

}  // namespace tilescope::cli
