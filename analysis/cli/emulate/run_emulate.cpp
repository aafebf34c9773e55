// SPDX-License-Identifier: Apache-2.0
// The work of `tilescope emulate`.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "analysis/cli/emulate/emulate.hpp"
#include "analysis/cli/emulate/emulate_arguments.hpp"
#include "common/log.hpp"

namespace tilescope::cli {

namespace emulator = gpu::emulator;

int run_emulate(const EmulateArguments& arguments, const CommandContext& context) {
  if (arguments.kernel.empty()) throw BadInput("KERNEL", "''", "must be a .ptx or .cu file; see --help");
  if (arguments.launch.empty()) throw BadInput("--launch", "(none)", "must be a launch.json; see --help");
  LaunchFile launch = read_launch_file(arguments.launch);
  const emulator::ptx::Module module = emulator::read_ptx(ptx_of(arguments.kernel, arguments.arch));
  emulator::Options& options = launch.call.options;
  options.races = arguments.races;
  options.seed = static_cast<std::uint64_t>(arguments.seed);
  options.threads = static_cast<int>(
      arguments.threads > 0 ? arguments.threads : std::max(1u, std::thread::hardware_concurrency()));
  options.most_seconds = static_cast<double>(arguments.most_seconds);
  const emulator::KernelResult result = call_kernel(module, launch.call);
  const ReferenceCheck reference = result.completed ? check_reference(launch) : ReferenceCheck{};
  const KernelRecord record =
      emulated_record(context, launch.call, module, result, reference.right, arguments.kernel);
  log_text(LogLevel::info, [&] {
    return fmt::format("emulated in {:.3f} s, {:.1f} M warp instructions a second", result.seconds,
                       static_cast<double>(result.report.steps) / result.seconds / 1e6);
  });
  context.write_json(to_json_text(record));
  context.print(arguments.verdict ? Output(verdict_json(record.kernels[0]))
                                  : emulation_text(record.kernels[0]) + reference.text);
  return result.right() && reference.right.value_or(true) ? kFine : kCheckFailed;
}

}  // namespace tilescope::cli
