// SPDX-License-Identifier: Apache-2.0
// `tilescope emulate KERNEL --launch LAUNCH.json`: somebody's kernel on the emulated device.
#include <memory>

#include "analysis/cli/emulate/emulate_arguments.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"

namespace tilescope::cli {
namespace {

constexpr const char* kLaunchFileHelp =
    R"(LAUNCH.json holds the launch and the kernel's arguments in order:
  {"kernel": "add", "grid": [8], "block": [128], "shared": 0,
   "arguments": [
    {"name": "x", "dtype": "float32", "shape": [1000], "fill": "random"},
    {"name": "y", "file": "y.npy", "expect": "sum.npy", "tolerance": 1e-5},
    {"name": "n", "dtype": "int32", "value": 1000}]}
kernel may be left out where there is one, or be part of a name; grid, block and cluster are one to
three numbers; registers says how many a thread has; max_dynamic_shared and non_portable_cluster (true)
are what host code asks for beyond 48 KiB and 8 CTAs, without which such launches are refused. An array is a file, or dtype and shape with fill: a number,
none (NaN, as memory that nobody wrote), zeros, arange or random. expect is a file or a number
that the array must hold afterwards. {"bytes": 16} with "hex" is a struct.
)";

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
  add_format_option(command, context);
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
