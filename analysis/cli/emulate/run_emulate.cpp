// SPDX-License-Identifier: Apache-2.0
// The work of `tilescope emulate`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "analysis/cli/emulate/emulate.hpp"
#include "analysis/emulation/call_with_dram.hpp"
#include "analysis/emulation/emulated_record.hpp"
#include "common/log.hpp"
#include "common/number_format.hpp"
#include "common/temporary_folder.hpp"
#include "emulator/counts/static_accesses.hpp"
#include "emulator/counts/store_runs.hpp"
#include "profiler/injection/profiled_command.hpp"

namespace tilescope::cli {

namespace emulator = gpu::emulator;

namespace {

/// As many as were asked for, or as this machine runs at once.
int threads_of(const EmulateArguments& arguments) {
  return static_cast<int>(arguments.threads > 0 ? arguments.threads
                                                : std::max(1u, std::thread::hardware_concurrency()));
}

/// Spills are findings; accesses that are other than the PTX's a warning.
void add_what_ptxas_did(emulator::ToldLaunch& told, const Assembled& assembled,
                        const emulator::ptx::Kernel& kernel) {
  const int stores = assembled.spill_store_bytes, loads = assembled.spill_load_bytes;
  const auto threads = static_cast<double>(told.facts.grid.count() * told.facts.block.count());
  if (stores + loads > 0) {
    const std::string text = fmt::format(
        "ptxas has a thread store {} B and load {} B where registers do not suffice: {} stored and {} loaded "
        "by the "
        "launch if each is reached once, which no number here holds",
        stores, loads, format_bytes(threads * stores), format_bytes(threads * loads));
    told.result.findings.push_back({emulator::FindingKind::spills, {}, text});
  }
  const auto of_ptx = emulator::accesses_in_ptx(kernel);
  const auto of_sass = emulator::accesses_in_sass(assembled.sass, kernel.name);
  if (!of_ptx || !of_sass) return;
  if (const auto differs = emulator::difference(*of_ptx, *of_sass))
    told.result.counts.notes.push_back("warning: " + *differs);
}

/// `emulate -- PROGRAM`: every launch of a program that is linked against the emulated CUDA runtime.
/// @returns its exit code where that is not 0
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
  const std::vector<emulator::ToldLaunch> launches = emulator::read_results(in);
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

}  // namespace

int run_emulate(const EmulateArguments& arguments, const CommandContext& context) {
  if (arguments.words.empty())
    throw BadInput("KERNEL", "''", "must be a .ptx or .cu file, or -- PROGRAM; see --help");
  const std::string& kernel = arguments.words.front();
  const bool is_file = kernel.ends_with(".ptx") || kernel.ends_with(".cu");
  if (arguments.launch.empty() && !is_file) return emulate_program(arguments, context);
  if (arguments.launch.empty()) throw BadInput("--launch", "(none)", "must be a launch.json; see --help");
  if (arguments.words.size() > 1)
    throw BadInput("emulate argument", "'" + arguments.words[1] + "'", "is one too many; see --help");
  LaunchFile launch = read_launch_file(arguments.launch);
  const std::string ptx = ptx_of(kernel, arguments.arch);
  const emulator::ptx::Module module = emulator::read_ptx(ptx);
  const auto assembled =
      assemble(ptx, module.target, emulator::choose_kernel(module, launch.call.kernel).name);
  if (assembled && !launch.call.registers) launch.call.registers = assembled->registers;
  if (assembled) {
    const std::string& name = emulator::choose_kernel(module, launch.call.kernel).name;
    launch.call.store_runs = emulator::store_runs_in_sass(assembled->sass, name);
  }
  emulator::Options& options = launch.call.options;
  options.races = arguments.races;
  options.seed = static_cast<std::uint64_t>(arguments.seed);
  options.threads = threads_of(arguments);
  options.most_seconds = static_cast<double>(arguments.most_seconds);
  emulator::ToldLaunch told = call_with_dram(module, launch.call);
  if (assembled) add_what_ptxas_did(told, *assembled, emulator::choose_kernel(module, launch.call.kernel));
  const emulator::KernelResult& result = told.result;
  const ReferenceCheck reference = result.completed ? check_reference(launch) : ReferenceCheck{};
  KernelRecord record = emulated_record(context.argv, {told}, kernel);
  record.kernels[0].emulated->right = reference.right;
  log_text(LogLevel::info, [&] {
    return fmt::format("emulated in {:.3f} s, {:.1f} M warp instructions a second", result.seconds,
                       static_cast<double>(result.report.steps) / result.seconds / 1e6);
  });
  context.write_json(to_json_text(record));
  if (arguments.verdict) {
    context.print_as_it_is(verdict_json(record.kernels[0]));
  } else {
    context.print(emulation_text(record.kernels[0], options.races) + reference.text);
  }
  return result.right() && reference.right.value_or(true) ? kFine : kCheckFailed;
}

}  // namespace tilescope::cli
