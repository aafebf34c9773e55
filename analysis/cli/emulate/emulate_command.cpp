// SPDX-License-Identifier: Apache-2.0
// `tilescope emulate KERNEL --launch LAUNCH.json`: somebody's kernel on the emulated device.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "analysis/cli/emulate/emulate.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/emulation/emulated_record.hpp"
#include "common/log.hpp"

namespace tilescope::cli {
namespace {

namespace emulator = gpu::emulator;

struct EmulateArguments {
  std::vector<std::string> words;  // the kernel's file, or a program and its arguments
  std::string launch, arch = "sm_90a";
  bool races = false, verdict = false;
  std::int64_t seed = 1, threads = 0, most_seconds = 600;
};

int run_emulate(const EmulateArguments& arguments, const CommandContext& context) {
  if (arguments.words.empty())
    throw BadInput("KERNEL", "''", "must be a .ptx or .cu file, or -- PROGRAM; see --help");
  const std::string& kernel = arguments.words.front();
  const bool is_file = kernel.ends_with(".ptx") || kernel.ends_with(".cu");
  if (arguments.launch.empty() && !is_file)
    return emulate_program(arguments.words, arguments.races, arguments.seed, context);
  if (arguments.launch.empty()) throw BadInput("--launch", "(none)", "must be a launch.json; see --help");
  if (arguments.words.size() > 1)
    throw BadInput("emulate argument", "'" + arguments.words[1] + "'", "is one too many; see --help");
  LaunchFile launch = read_launch_file(arguments.launch);
  const emulator::ptx::Module module = emulator::read_ptx(ptx_of(kernel, arguments.arch));
  emulator::Options& options = launch.call.options;
  options.races = arguments.races;
  options.seed = static_cast<std::uint64_t>(arguments.seed);
  options.threads = static_cast<int>(
      arguments.threads > 0 ? arguments.threads : std::max(1u, std::thread::hardware_concurrency()));
  options.most_seconds = static_cast<double>(arguments.most_seconds);
  const emulator::ToldLaunch told = call_and_tell(module, launch.call);
  const emulator::KernelResult& result = told.result;
  const ReferenceCheck reference = result.completed ? check_reference(launch) : ReferenceCheck{};
  KernelRecord record = emulated_record(context.argv, {told}, kernel);
  record.kernels[0].emulated->right = reference.right;
  log_text(LogLevel::info, [&] {
    return fmt::format("emulated in {:.3f} s, {:.1f} M warp instructions a second", result.seconds,
                       static_cast<double>(result.report.steps) / result.seconds / 1e6);
  });
  context.write_json(to_json_text(record));
  context.print(arguments.verdict ? verdict_json(record.kernels[0])
                                  : emulation_text(record.kernels[0]) + reference.text);
  return result.right() && reference.right.value_or(true) ? kFine : kCheckFailed;
}

}  // namespace

void add_emulate_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<EmulateArguments>();
  CLI::App& command = add_command(
      app, context, "emulate",
      "a kernel's PTX on the CPU, without a GPU: bytes by source line, races, accesses out of bounds",
      [arguments, &context] { return run_emulate(*arguments, context); });
  add_value(
      command, "kernel", arguments->words, "KERNEL",
      "PTX, or a .cu file, which nvcc compiles where it is; or -- PROGRAM of the emulated CUDA runtime");
  add_value(command, "--launch", arguments->launch, "LAUNCH.json", "grid, block and arguments; see below");
  command.add_flag("--races", arguments->races,
                   "look for races in shared memory and for reads of what nobody wrote; slower");
  command.add_flag(
      "--verdict", arguments->verdict,
      "print one JSON object: right, races, out of bounds, bytes over what must be moved, seconds");
  add_value(command, "--arch", arguments->arch, "sm_NN", "what a .cu is compiled for (sm_90a)");
  add_integer(command, "--seed", arguments->seed, 0, kAnyCount,
              "which order of warps, and which moments of asynchronous operations, are drawn (1)");
  add_integer(command, "--threads", arguments->threads, 1, 1024,
              "of this machine, where CTAs know nothing of each other (all); no result differs");
  add_integer(command, "--most-seconds", arguments->most_seconds, 1, kAnyCount,
              "refuse a launch that would take longer (600)");
  show_examples(
      command,
      {{"emulate add.ptx --launch add.json", "bytes by line, and what is found"},
       {"emulate add.cu --launch add.json --races --json add-run.json", "a record for report and diff"},
       {"emulate add.ptx --launch add.json --verdict", "for a program that writes kernels"},
       {"emulate -- build/emulator/bin/tilescope run --kernel gpu:flash3 --out o",
        "a program on the emulated runtime"}},
      kLaunchFileHelp);
}

}  // namespace tilescope::cli
