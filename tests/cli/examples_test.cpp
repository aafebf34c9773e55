// SPDX-License-Identifier: Apache-2.0
// The examples, run as their README says; of those that want a GPU, the part that does not.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/cli/program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

struct ShellResult {
  int exit_code = -1;
  std::string out;
};

ShellResult run_example(const std::string& line) {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "out").string();
  const int code = std::system(("TILESCOPE='" TILESCOPE_PROGRAM "' " + line + " >" + out + " 2>&1").c_str());
  std::ostringstream text;
  text << std::ifstream(out).rdbuf();
  return {WEXITSTATUS(code), text.str()};
}

}  // namespace

TEST_CASE("the byte budget fails on a halved tile, and says why") {
  const TemporaryFolder folder;
  const ShellResult result =
      run_example(TILESCOPE_SOURCE_DIR "/examples/byte_budget.sh " + folder.path().string());
  CAPTURE(result.out);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.out, "beyond the budget"));
  CHECK(contains(result.out, "by tiles of 64x64 against 128x64"));
  CHECK(run_example(TILESCOPE_SOURCE_DIR "/examples/byte_budget.sh").out == result.out);
}

TEST_CASE("PyTorch's kernels are explained from a record that was measured elsewhere") {
  const ShellResult result =
      run_example(TILESCOPE_SOURCE_DIR "/examples/profile_pytorch.sh " TILESCOPE_SOURCE_DIR
                                       "/reports/foreign/mha.json.gz");
  CAPTURE(result.out);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "explained: forward"));
}

TEST_CASE("a GPU that is not here is predicted beside one that is known") {
  const ShellResult result = run_example(TILESCOPE_SOURCE_DIR "/examples/predict_gpu.sh");
  CAPTURE(result.out);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "NVIDIA H20, 96 GB"));
  CHECK(contains(result.out, "of them a token"));
  CHECK(contains(result.out, "SM<->L2 5.765 TB/s (derived)"));  // without, the slower GPU would look faster
}

TEST_CASE("a planted bug is found in its tile") {
  const ShellResult result = run_example(TILESCOPE_EXAMPLE_LOCATE_BUG);
  CAPTURE(result.out);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "WRONG"));
  CHECK(contains(result.out, "batch 0, head 0, m_block 0"));
  CHECK(contains(result.out, "n_block 2 (keys 128 ... 191): scores"));
}

}  // namespace tilescope::testing
