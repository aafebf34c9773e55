// SPDX-License-Identifier: Apache-2.0
// SVG -> PDF, by librsvg's program: its fonts are inside, and its text can be searched.
#include <fmt/format.h>
#include <sys/wait.h>

#include <cerrno>
#include <system_error>

#include "analysis/records/files/text_file.hpp"
#include "analysis/report/document/report_document.hpp"
#include "common/child_process.hpp"
#include "common/errors.hpp"
#include "common/temporary_folder.hpp"

namespace tilescope {
namespace {

constexpr const char* kProgram = "rsvg-convert";

pid_t start_converter(const std::string& from, const std::string& to) {
  try {
    return start_process({{kProgram, "--format", "pdf", "--output", to, from}, {}, {}, {}});
  } catch (const std::system_error&) {
    throw MachineLacks(fmt::format(
        "no PDF is written, all else is: --pdf needs {}, which Debian's and Ubuntu's package librsvg2-bin "
        "installs; the figures are there as SVG, which most programs read",
        kProgram));
  }
}

}  // namespace

std::string to_pdf(const std::string& svg) {
  const TemporaryFolder folder;
  const std::string from = folder.path() / "figure.svg", to = folder.path() / "figure.pdf";
  write_file_atomically("--pdf", from, svg);
  const pid_t converter = start_converter(from, to);
  int status = 0;
  while (waitpid(converter, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0)
    throw MachineLacks(fmt::format("no PDF is written, all else is: {} failed, status {}", kProgram, status));
  return read_text_file(to);
}

}  // namespace tilescope
