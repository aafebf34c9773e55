// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/simulate/simulate_arguments.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "analysis/cli/options/parse_text.hpp"

namespace tilescope::cli {
namespace {

constexpr const char* kMachineGroup = "Machine";
constexpr const char* kSeveralGpusGroup = "Several GPUs";

void add_subject_options(SimulateArguments& arguments, CLI::App& command) {
  arguments.problem.add_to(command);
  refuse_v_transposed(command);
  arguments.kernel.add_to(command, true);
  arguments.sweep.add_to(command);
  command
      .add_option("--record", arguments.record,
                  "instead of a problem: the runs of a measured record, simulated in their own memory; "
                  "--json gets the simulation alone, which names that record")
      ->type_name("FILE");
}

void add_machine_options(SimulateArguments& arguments, CLI::App& command) {
  command
      .add_option(
          "--machine", arguments.machine,
          "a machine's name (tilescope list machines) or a file, or several with commas; default h200")
      ->type_name("MACHINE|FILE.json")
      ->group(kMachineGroup);
  command.add_option("--compare", arguments.compare, "another machine beside it; may be repeated")
      ->type_name("MACHINE|FILE.json")
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false)
      ->group(kMachineGroup)
      ->excludes("--record");
  command
      .add_option("--l2-bytes", arguments.l2_bytes, "capacity of an LRU cache in place of the machine's L2")
      ->type_name("BYTES")
      ->group(kMachineGroup);
  command
      .add_option(
          "--pages", arguments.pages,
          "where the tensors' pages lie in memory: each tensor in one piece, or every page at a random "
          "place (contiguous)")
      ->type_name("contiguous|random")
      ->group(kMachineGroup)
      ->excludes("--record");
  // Its former name.
  command.add_option("--memory", arguments.pages)->group("")->excludes("--record")->excludes("--pages");
  command
      .add_option("--ctas-per-sm", arguments.ctas_per_sm,
                  "CTAs that run at once on an SM; default: what shared memory allows")
      ->type_name("N")
      ->group(kMachineGroup);
  command
      .add_option("--sram-bytes", arguments.sram_bytes,
                  "tile by FlashAttention's rule for M of so many bytes; machine: a CTA's shared memory")
      ->type_name("BYTES|machine")
      ->group(kMachineGroup)
      ->excludes("--tile")
      ->excludes("--sweep");
}

void add_replay_options(SimulateArguments& arguments, CLI::App& command) {
  command.add_flag("--closed-form", arguments.closed_form_only, "formulas alone, no replay")
      ->group(kMachineGroup);
  command.add_flag("--curve", arguments.curve, "also DRAM bytes against L2 size; printed with the details")
      ->group(kMachineGroup);
  command
      .add_flag("--tune-bytes", arguments.tune_bytes,
                "which tiles, orders and scans move least: the Pareto front of SM<->L2 and DRAM bytes")
      ->group(kMachineGroup)
      ->excludes("--record");
  command.add_flag("--dry-run", arguments.dry_run, "what would be simulated, and how long it may take");
  command.add_flag("--detail", arguments.detail,
                   "every pass, where several kernels or machines stand side by side");
}

void add_gpu_options(SimulateArguments& arguments, CLI::App& command) {
  arguments.gpus.add_to(command, {"--kernel",      "--tile",       "--backward",        "--order",
                                  "--scan",        "--fp8-sums",   "--diagonal-slices", "--sweep",
                                  "--record",      "--compare",    "--l2-bytes",        "--pages",
                                  "--ctas-per-sm", "--sram-bytes", "--closed-form",     "--curve",
                                  "--tune-bytes",  "--dry-run",    "--detail",          "--shard"},
                        false);
  command
      .add_option("--flop-rate", arguments.flop_rate,
                  "TFLOP/s of a GPU's launches, in place of the machine's peak")
      ->type_name("TFLOPS")
      ->group(kSeveralGpusGroup);
  command
      .add_option("--link-rate", arguments.link_rate,
                  "bytes a second to another GPU, one way, in place of the machine's: 50GB")
      ->type_name("BYTES")
      ->group(kSeveralGpusGroup);
}

}  // namespace

void SimulateArguments::add_to(CLI::App& command, std::string& json) {
  add_subject_options(*this, command);
  add_machine_options(*this, command);
  add_replay_options(*this, command);
  shard.add_to(command, {"--record", "--tune-bytes"}, json);
  add_gpu_options(*this, command);
}

AttentionProblem SimulateArguments::simulated_problem() const {
  AttentionProblem simulated = problem.problem();
  if (!problem.type_given() && !kernel.given() && !sram_bytes) simulated.dtype = ElementType::fp16;
  return simulated;
}

std::vector<Machine> SimulateArguments::machines() const {
  std::vector<Machine> machines;
  const auto add = [&machines](const std::string& names) {
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, ',');) {
      Machine loaded = load_machine(name);
      const auto same = [&loaded](const Machine& other) { return other.name == loaded.name; };
      if (std::none_of(machines.begin(), machines.end(), same)) machines.push_back(std::move(loaded));
    }
  };
  add(machine);
  for (const std::string& names : compare) add(names);
  if (machines.empty()) throw BadInput("machine", "'" + machine + "'", "must name one");
  return machines;
}

SimulationOptions SimulateArguments::simulation_options(const Machine& on) const {
  SimulationOptions how;
  if (l2_bytes) how.l2_bytes = parse_bytes_in("l2-bytes", *l2_bytes, 0, std::int64_t{1} << 50);
  if (ctas_per_sm) how.ctas_per_sm = parse_integer_in("ctas-per-sm", *ctas_per_sm, 1, on.ctas_per_sm.value);
  how.replay = !closed_form_only;
  how.l2_curve = curve;
  how.pages = parse_page_placement(pages);
  return how;
}

}  // namespace tilescope::cli
