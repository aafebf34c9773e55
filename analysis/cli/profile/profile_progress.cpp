// SPDX-License-Identifier: Apache-2.0
// `tilescope profile --kernel NAME --cta-progress`: how unevenly SMs share themselves between a kernel's
// CTAs, and how far their clocks lie apart meanwhile.
#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <optional>
#include <thread>

#include "analysis/cli/cell_parts.hpp"
#include "analysis/cli/profile/profile.hpp"
#include "analysis/model/counts/what_ran.hpp"
#include "analysis/model/replay/ctas/cta_progress.hpp"
#include "analysis/records/run_record.hpp"
#include "common/statistics.hpp"
#include "gpu/launch/pass_runner.hpp"

namespace tilescope::cli {
namespace {

/// Whether `places` CTAs run at once, each of which makes as many steps as any other. A kernel whose steps
/// are noted has another loop than the one that is counted and timed: its SMs do not tell.
bool same_work_on_all_sms(const TileProgram& program, std::int64_t places) {
  return !PassRunner::has_step_clock() && program.num_ctas() == places && !program.problem.masked();
}

/// How much the CTAs of a pass's launches, and the clocks of the SMs, differ from each other. The launches
/// stand apart, as those that counters are taken from: some 30 ms of wgmma in a row reach the power limit,
/// where all GPCs come down to one clock.
void measure_spread(PassRunner& runner, std::size_t pass, std::int64_t ctas_per_sm, ProgressRates& rates) {
  using namespace std::chrono_literals;
  constexpr int kLaunches = 5;
  constexpr auto kPause = 100ms;
  std::vector<double> clock_cvs, tpc_cvs;
  for (int launch = 0; launch < kLaunches; ++launch) {
    std::this_thread::sleep_for(kPause);
    const std::vector<double> clocks = runner.clock_rates(pass);
    clock_cvs.push_back(coefficient_of_variation(clocks));
    const auto places = static_cast<std::int64_t>(clocks.size()) * ctas_per_sm;
    if (!same_work_on_all_sms(runner.programs()[pass], places)) continue;
    tpc_cvs.push_back(measured_tpc_cv(runner.busy_cycles(pass)));
  }
  rates.clock_cv = median_of(clock_cvs);
  if (!tpc_cvs.empty()) rates.tpc_cv = median_of(tpc_cvs);
}

/// Nothing of an elementwise pass, or of one in which no CTA shares its SM.
std::optional<PassRecord> measured_pass(PassRunner& runner, std::size_t index, Direction direction,
                                        int ctas_per_sm) {
  constexpr int kNotes = 32;  // of a CTA: few, since each note takes a little time
  const TileProgram& program = runner.programs()[index];
  if (program.phases.empty() || ctas_per_sm == 0) return std::nullopt;
  PassRecord pass;
  pass.name = to_string(program.name);
  pass.direction = direction;
  pass.tile = program.tile;
  if (PassRunner::has_step_clock()) {
    pass.progress = measured_progress(runner.time_steps(index, kNotes), ctas_per_sm);
  } else {
    pass.progress.emplace().ctas_per_sm = ctas_per_sm;
  }
  if (!pass.progress) return std::nullopt;
  measure_spread(runner, index, ctas_per_sm, pass.progress->rates);
  return pass;
}

constexpr const char* kHeads[] = {"kernel",         "pass",       "problem",  "tile",    "CTAs an SM", "step",
                                  "younger's rate", "rate alone", "steps CV", "TPCs CV", "clocks CV"};

Row progress_row(const RunEntry& run, const PassRecord& pass) {
  const auto& [ctas_per_sm, step_cycles, rates] = *pass.progress;
  return {run.kernel,
          pass.name,
          as_problem(run.problem),
          fmt::format("{}x{}", pass.tile.block_m, pass.tile.block_n),
          as_count(ctas_per_sm),
          step_cycles > 0 ? as_number(fmt::format("{:.0f} cycles", step_cycles), step_cycles) : Cell("-"),
          as_number(fmt::format("{:.3f}", rates.younger_rate), rates.younger_rate),
          as_number(fmt::format("{:.3f}", rates.alone_rate), rates.alone_rate),
          as_percent(rates.step_cv),
          as_percent(rates.tpc_cv, 3),
          as_percent(rates.clock_cv, 3)};
}

/// The passes of a job, and a row of the table for each.
RunEntry measured_run(const Job& job, const Machine& machine, const DeviceFacts& device,
                      std::vector<Row>& table) {
  RunEntry run = entry_of(job.kernel->row, job.problem);
  std::vector<Row> rows;
  for (const Direction direction : job.directions) {
    PassRunner runner(*job.kernel, job.problem, direction,
                      options_on(machine, job.kernel->row, job.problem, direction, job.options));
    for (std::size_t i = 0; i < runner.programs().size(); ++i) {
      runner.launch(i, nullptr);
      runner.check();
      const int ctas_per_sm = job.kernel->row.launch_shape(runner.programs()[i], device.chip).ctas_per_sm;
      const auto pass = measured_pass(runner, i, direction, ctas_per_sm);
      if (!pass) continue;
      rows.push_back(progress_row(run, *pass));
      run.passes.push_back(*pass);
    }
  }
  table.insert(table.end(), rows.begin(), rows.end());
  return run;
}

}  // namespace

int profile_progress(ProfileKernelOptions& arguments, const CommandContext& context) {
  const Machine machine = load_machine(arguments.machine);
  Plan plan = plan_jobs(arguments, machine);
  for (const Job& job : plan.jobs) require_runnable(job.kernel->row);
  if (!arguments.rows.judge(rows_jobs(plan, machine), context)) return kCheckFailed;
  RunRecord record = start_record(context.argv);
  const DeviceFacts device = *device_facts();
  record.machine.name = device.name;
  record.machine.chip = device.chip.name();
  record.machine.cuda = device.driver;
  record.machine.source = "the driver of this machine";
  std::vector<Row> table;
  table.emplace_back(std::begin(kHeads), std::end(kHeads));
  Progress progress(context, "measuring", static_cast<std::int64_t>(plan.jobs.size()));
  for (const Job& job : plan.jobs) {
    progress.step(job.title());
    plan.refusals.allow(std::string(job.kernel->row.name), describe(job.problem),
                        [&] { record.runs.push_back(measured_run(job, machine, device, table)); });
  }
  if (record.runs.empty()) plan.refusals.throw_first();
  arguments.rows.note_in(record.runs);
  record.refused = plan.refusals.lines();
  context.print(Output(Table{table}) + plan.refusals.text(record.runs.size()));
  context.write_record(record);
  return kFine;
}

}  // namespace tilescope::cli
