// SPDX-License-Identifier: Apache-2.0
// `tilescope profile --kernel NAME --cta-progress`: how unevenly SMs share themselves between a kernel's
// CTAs, and how far their clocks lie apart meanwhile.
#include <fmt/format.h>

#include "analysis/cli/profile/profile_kernels.hpp"
#include "analysis/cli/profile/profile_plan.hpp"
#include "analysis/cli/tables/text_table.hpp"
#include "analysis/records/run_record.hpp"
#include "analysis/replay/ctas/cta_progress.hpp"
#include "common/statistics.hpp"
#include "gpu/launch/pass_runner.hpp"

namespace tilescope::cli {
namespace {

/// Whether `places` CTAs run at once, each of which makes as many steps as any other. A kernel whose steps
/// are noted has another loop than the one that is counted and timed: its SMs do not tell.
bool same_work_on_all_sms(const TileProgram& program, std::int64_t places) {
  return !PassRunner::has_step_clock() && program.num_ctas() == places && !program.problem.masked();
}

}  // namespace

int profile_progress(ProfileKernelOptions& arguments, const CommandContext& context) {
  constexpr int kNotes = 32;  // of a CTA: few, since each note takes a little time
  constexpr int kClockLaunches = 5;
  const Machine machine = load_machine(arguments.machine);
  const Plan plan = plan_jobs(arguments, machine);
  for (const Job& job : plan.jobs) require_runnable(job.kernel->row);
  if (!arguments.rows.judge(rows_jobs(plan, machine), context)) return kCheckFailed;
  RunRecord record = start_record(context.argv);
  const DeviceFacts device = *device_facts();
  record.machine.name = device.name;
  record.machine.chip = device.chip.name();
  record.machine.cuda = device.driver;
  record.machine.source = "the driver of this machine";
  std::vector<std::vector<std::string>> table = {{"kernel", "pass", "problem", "tile", "CTAs an SM", "step",
                                                  "younger's rate", "rate alone", "steps CV", "TPCs CV",
                                                  "clocks CV"}};
  Progress progress(context, "measuring", static_cast<std::int64_t>(plan.jobs.size()));
  for (const Job& job : plan.jobs) {
    progress.step(job.title());
    RunEntry run{
        .problem = job.problem, .kernel = std::string(job.kernel->row.name), .passes = {}, .error = {}};
    for (const Direction direction : job.directions) {
      PassRunner runner(*job.kernel, job.problem, direction,
                        options_on(machine, job.kernel->row, job.problem, direction, job.options));
      for (std::size_t i = 0; i < runner.programs().size(); ++i) {
        runner.launch(i, nullptr);
        runner.check();
        const TileProgram& program = runner.programs()[i];
        const int ctas_per_sm = job.kernel->row.launch_shape(program, device.chip).ctas_per_sm;
        if (program.phases.empty() || ctas_per_sm == 0) continue;
        PassRecord pass;
        pass.name = to_string(program.name);
        pass.direction = direction;
        pass.tile = program.tile;
        if (PassRunner::has_step_clock()) {
          pass.progress = measured_progress(runner.time_steps(i, kNotes), ctas_per_sm);
        } else {
          pass.progress.emplace().ctas_per_sm = ctas_per_sm;
        }
        if (!pass.progress) continue;
        std::vector<double> clock_cvs, tpc_cvs;
        for (int launch = 0; launch < kClockLaunches; ++launch) {
          const std::vector<double> rates = runner.clock_rates(i);
          clock_cvs.push_back(coefficient_of_variation(rates));
          if (!same_work_on_all_sms(program, static_cast<std::int64_t>(rates.size()) * ctas_per_sm)) continue;
          tpc_cvs.push_back(measured_tpc_cv(runner.busy_cycles(i)));
        }
        pass.progress->rates.clock_cv = median_of(clock_cvs);
        if (!tpc_cvs.empty()) pass.progress->rates.tpc_cv = median_of(tpc_cvs);
        table.push_back(
            {run.kernel, pass.name, describe(job.problem),
             fmt::format("{}x{}", pass.tile.block_m, pass.tile.block_n), std::to_string(ctas_per_sm),
             pass.progress->step_cycles > 0 ? fmt::format("{:.0f} cycles", pass.progress->step_cycles) : "-",
             fmt::format("{:.3f}", pass.progress->rates.younger_rate),
             fmt::format("{:.3f}", pass.progress->rates.alone_rate),
             fmt::format("{:.1f} %", 100 * pass.progress->rates.step_cv),
             fmt::format("{:.3f} %", 100 * pass.progress->rates.tpc_cv),
             fmt::format("{:.3f} %", 100 * pass.progress->rates.clock_cv)});
        run.passes.push_back(std::move(pass));
      }
    }
    record.runs.push_back(std::move(run));
  }
  arguments.rows.note_in(record.runs);
  context.print(
      align_columns(table, "", {false, false, false, true, true, true, true, true, true, true, true}));
  context.write_record(record);
  return kFine;
}

}  // namespace tilescope::cli
