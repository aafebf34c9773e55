// SPDX-License-Identifier: Apache-2.0
// `tilescope run`: attention on .npy inputs, or on random ones.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/expected_time.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/run/input_files.hpp"
#include "analysis/model/counts/tensor_bytes.hpp"
#include "analysis/model/counts/what_ran.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/records/files/npy_file.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/run_record.hpp"
#include "common/memory_budget.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope::cli {
namespace {

struct RunOptions {
  ProblemOptions problem;
  KernelOptions kernel;
  GpuOptions gpus;
  InputPaths inputs;
  std::optional<std::string> kind, out;
  bool save_inputs = false;
};

constexpr std::pair<const char*, TensorName> kInputFiles[] = {{"q.npy", TensorName::q},
                                                              {"k.npy", TensorName::k},
                                                              {"v.npy", TensorName::v},
                                                              {"dout.npy", TensorName::dout},
                                                              {"sink.npy", TensorName::sink}};
constexpr std::pair<const char*, TensorName> kResultFiles[] = {
    {"o.npy", TensorName::out}, {"lse.npy", TensorName::lse}, {"dq.npy", TensorName::dq},
    {"dk.npy", TensorName::dk}, {"dv.npy", TensorName::dv},   {"dsink.npy", TensorName::dsink}};

/// Results replace results, but never what somebody may have as an input: a file that is read, or, where
/// random inputs are saved, one that has an input's name.
/// @throws BadInput naming the file
void require_inputs_kept(const RunOptions& options, const std::vector<InputFile>& inputs) {
  namespace fs = std::filesystem;
  const fs::path folder = *options.out;
  std::error_code ignored;
  if (options.save_inputs) {
    for (const auto& [name, tensor] : kInputFiles) {
      if (!fs::exists(folder / name, ignored)) continue;
      throw BadInput("out", *options.out,
                     fmt::format("must be a folder without {0}, which --save-inputs would replace", name));
    }
  }
  for (const auto& [name, tensor] : kResultFiles) {
    for (const InputFile& input : inputs) {
      if (!fs::equivalent(folder / name, input.path, ignored)) continue;
      throw BadInput("out", *options.out,
                     fmt::format("must be another folder: {} = {} would be replaced by {}",
                                 to_string(input.tensor), input.path, name));
    }
  }
}

std::vector<NpyOutput> outputs_of(const TensorSet& tensors, bool save_inputs) {
  std::vector<NpyOutput> outputs;
  const auto add = [&](const char* file_name, TensorName tensor) {
    if (tensors.has(tensor)) outputs.push_back({file_name, &tensors[tensor]});
  };
  if (save_inputs) {
    for (const auto& [name, tensor] : kInputFiles) add(name, tensor);
  }
  for (const auto& [name, tensor] : kResultFiles) add(name, tensor);
  return outputs;
}

/// What files or options ask for.
struct RunPlan {
  std::vector<InputFile> files;  // none: random inputs
  InputKind kind = InputKind::normal;
  const Kernel* kernel = nullptr;
  AttentionProblem problem;
  ProgramOptions options;
  std::vector<Direction> directions;
  std::vector<PlannedPass> passes;

  bool random() const { return files.empty(); }
};

/// @throws BadInput, MachineLacks: before anything is computed or written
RunPlan plan_run(const RunOptions& options) {
  RunPlan plan;
  plan.files = input_files(options.inputs);
  if (!plan.random()) {
    if (options.kind) throw BadInput("inputs", *options.kind, "must be left out where files are given");
    if (options.problem.pass_given())
      throw BadInput("--pass must be left out where files are given: --dout asks for the backward pass");
    if (options.save_inputs) throw BadInput("--save-inputs must be left out where files are given");
  }
  require_inputs_kept(options, plan.files);
  if (options.kind) plan.kind = parse_input_kind(*options.kind);
  const bool backward =
      plan.random() ? options.problem.directions().back() == Direction::backward : plan.files.size() == 4;
  plan.directions = {Direction::forward};
  if (backward) plan.directions.push_back(Direction::backward);
  plan.kernel = options.kernel.kernels({"cpu:flash2"}).front();
  plan.problem = plan.random() ? options.problem.in_type_of({plan.kernel}, options.problem.problem())
                               : problem_of_files(plan.files, options.problem);
  if (!plan.random() && plan.problem.score_mods.learned_sink) {
    throw BadInput(
        "learned_sink", "given",
        "must be left out where files are given, none of which holds sinks; tilescope.attention in "
        "Python takes them");
  }
  plan.options = options.kernel.tuned_options(*plan.kernel, plan.problem);
  for (const Direction direction : plan.directions) {
    require_supported(*plan.kernel, plan.problem, direction, plan.options);
    for (const TileProgram& program : plan.kernel->programs(direction, plan.problem, plan.options)) {
      plan.passes.push_back({direction, program});
    }
  }
  require_runnable(*plan.kernel);
  return plan;
}

std::vector<TileProgram> programs_of(const RunPlan& plan) {
  std::vector<TileProgram> programs;
  for (const PlannedPass& pass : plan.passes) programs.push_back(pass.program);
  return programs;
}

RunRecord record_of(const RunPlan& plan, const CommandContext& context) {
  RunRecord record = start_record(context.argv);
  RunEntry& entry = record.runs.emplace_back(entry_of(*plan.kernel, plan.problem));
  entry.order = plan.options.order;
  entry.scan = plan.options.scan;
  if (plan.random()) entry.inputs = plan.kind;
  for (const auto& [direction, program] : plan.passes)
    entry.passes.push_back(counted_pass(direction, program));
  return record;
}

std::string written_text(const RunPlan& plan, const std::vector<NpyOutput>& outputs,
                         const std::string& folder, ElementType dtype) {
  std::vector<std::string> names;
  for (const NpyOutput& output : outputs) names.push_back(output.file_name);
  std::string text = fmt::format("{} on {}: {} in {}\n", plan.kernel->name, describe(plan.problem),
                                 fmt::join(names, ", "), folder);
  if (npy_dtype(dtype) != dtype) {
    text += fmt::format("NumPy has no {}: the values are written as float32, unchanged\n", to_string(dtype));
  }
  return text;
}

int run(const CommandContext& context, const RunOptions& options) {
  options.gpus.require_complete();
  if (!options.out) throw BadInput("out", "''", "must name the folder for the results");
  const RunPlan plan = plan_run(options);
  options.gpus.require_one_process("one process writes the results; verify and bench take it");
  ProgramRunner run_on_several;
  if (options.gpus.given())
    run_on_several = program_runner(options.gpus, nullptr, options.kernel, plan.problem, "cpu:flash2");
  const std::string what = fmt::format("{} on {}", plan.kernel->name, describe(plan.problem));
  require_memory(tensor_bytes(programs_of(plan)), what);
  // Here only to refuse it before the work: what is interrupted leaves no folder.
  { const CreatedFolders tried = require_writable_folder("out", *options.out); }

  if (!plan.kernel->on_gpu() && !options.gpus.given()) {
    context.print(
        announcement("run", plan.problem, plan.directions.back(), [&plan](const AttentionProblem& small) {
          TensorSet tensors(small);
          fill_random_inputs(tensors, plan.directions.back(), plan.kind);
          for (const Direction direction : plan.directions)
            plan.kernel->run(plan.options, direction, tensors, nullptr);
        }));
  }
  const Progress progress(context, what);
  TensorSet tensors(plan.problem);
  load_inputs(context, plan.files, tensors);
  if (plan.random()) fill_random_inputs(tensors, plan.directions.back(), plan.kind);
  for (const Direction direction : plan.directions) {
    if (run_on_several) {
      run_on_several(build_distributed(plan.problem, direction, options.gpus.options()), tensors);
    } else {
      plan.kernel->run(plan.options, direction, tensors, nullptr);
    }
  }
  const std::vector<NpyOutput> outputs = outputs_of(tensors, options.save_inputs);
  const CreatedFolders created = require_writable_folder("out", *options.out);
  write_npy_files("out", *options.out, outputs);
  context.print(written_text(plan, outputs, *options.out, tensors[TensorName::out].dtype()));
  if (context.wants_json()) context.write_json(to_json_text(record_of(plan, context)));
  return kFine;
}

}  // namespace

void add_run_command(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App& command = add_command(app, context, "run", "attention on .npy inputs, or on random ones",
                                  [&context, options] { return run(context, *options); });
  const auto add_path = [&command](const char* flag, std::optional<std::string>& target, const char* help) {
    command.add_option(flag, target, help)->type_name("FILE.npy");
  };
  InputPaths& inputs = options->inputs;
  add_path("--q", inputs.q, "queries (B, H, Nq, D), float32 or float16, C order");
  add_path("--k", inputs.k, "keys (B, Hkv, Nk, D)");
  add_path("--v", inputs.v, "values (B, Hkv, Nk, D)");
  add_path("--qkv", inputs.qkv, "all three in one array (B, N, 3, H, D), as a projection layer writes them");
  add_path("--dout", inputs.dout, "gradient of the output, shaped as q: asks for dq, dk and dv too");
  command.add_flag("--v-transposed", inputs.v_transposed,
                   "the values are stored (B, Hkv, D, Nk), as products in fp8 want them");
  add_value(command, "--inputs", options->kind, "normal|outlier|equal-rows|huge-scale",
            "kind of random inputs, where no files are given");
  command.add_flag(
      "--save-inputs", options->save_inputs,
      "also write the random inputs: q.npy, k.npy, v.npy and dout.npy, into a folder without such files");
  add_value(command, "--out", options->out, "DIR", "folder for o.npy, lse.npy, dq.npy, dk.npy and dv.npy");
  options->kernel.add_to(command);
  options->problem.add_to(command);
  options->gpus.add_to(command,
                       {"--backward", "--order", "--scan", "--fp8-sums", "--variant", "--diagonal-slices",
                        "--splits", "--pack-gqa", "--query-splits"},
                       true);
  show_examples(
      command,
      {{"run --seqlen 256 --out /tmp/o", "random inputs; o.npy and lse.npy"},
       {"run --qkv qkv.npy --causal --out o", "one array of all three"},
       {"run --gpus 4 --schedule ring --heads 4 --seqlen 1k --out o", "by ranks that share the tokens"},
       {"run --q q.npy --k k.npy --v v.npy --dout dout.npy --out grads", "gradients too"}});
}

}  // namespace tilescope::cli
