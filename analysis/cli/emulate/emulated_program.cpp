// SPDX-License-Identifier: Apache-2.0
// `tilescope emulate -- PROGRAM`: every launch of a program that is linked against the emulated CUDA runtime.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "analysis/cli/emulate/emulate.hpp"
#include "analysis/emulation/emulated_record.hpp"
#include "common/temporary_folder.hpp"
#include "profiler/injection/profiled_command.hpp"

namespace tilescope::cli {

int emulate_program(const EmulateArguments& arguments, const CommandContext& context) {
  const std::vector<std::string>& words = arguments.words;
  const TemporaryFolder folder;
  const std::string results = (folder.path() / "results").string();
  setenv("TILESCOPE_EMULATED_COUNTS", results.c_str(), 1);
  setenv("TILESCOPE_EMULATED_SEED", std::to_string(arguments.seed).c_str(), 1);
  setenv("TILESCOPE_EMULATED_THREADS", std::to_string(threads_of(arguments)).c_str(), 1);
  if (arguments.races) setenv("TILESCOPE_EMULATED_RACES", "1", 1);
  CommandOptions options;
  options.output_to_stderr = context.json == "-";
  const CommandOutcome outcome = run_command(words, options);
  std::ifstream in(results);
  const std::vector<gpu::emulator::ToldLaunch> launches = gpu::emulator::read_results(in);
  if (launches.empty()) {
    throw BadInput(
        "PROGRAM", words.front(),
        "must launch kernels on the emulated CUDA runtime: link it with tilescope_emulated_runtime in "
        "cudart's place, as cmake --preset emulator does");
  }
  KernelRecord record = emulated_record(context.argv, launches, "");
  record.exit_code = outcome.exit_code;
  context.write_json(to_json_text(record));
  for (const KernelMeasurement& kernel : record.kernels)
    context.print(emulation_text(kernel, arguments.races) + "\n");
  const bool right = std::ranges::all_of(launches, [](const auto& told) { return told.result.right(); });
  return outcome.exit_code != 0 ? outcome.exit_code : right ? kFine : kCheckFailed;
}

}  // namespace tilescope::cli
