// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/profile/profile_plan.hpp"

namespace tilescope::cli {
namespace {

/// The directions that the kernel takes with these options; those it refuses are noted, or thrown when there
/// is one problem alone.
std::vector<Direction> taken_directions(const ProfileKernelOptions& arguments, const Job& job, Plan& plan) {
  std::vector<Direction> taken;
  for (const Direction direction : arguments.problem.directions()) {
    auto reason = job.kernel->row.refusal(job.problem, direction, job.options);
    if (!reason && direction == Direction::backward && job.options.backward == BackwardOrder::joined) {
      const char* const why =
          "launches two passes at once, and passes are measured one by one; bench times it";
      if (!arguments.sweep.given()) throw BadInput("backward", "joined", why);
      reason = std::string("joined ") + why;
    }
    if (!reason) {
      taken.push_back(direction);
    } else if (arguments.sweep.given()) {
      plan.left_out.push_back(fmt::format("{}, {}: {}", job.title(), to_string(direction), *reason));
    } else {
      require_supported(job.kernel->row, job.problem, direction, job.options);
    }
  }
  return taken;
}

}  // namespace

Plan plan_jobs(const ProfileKernelOptions& arguments, const Machine& machine) {
  Plan plan;
  std::vector<const GpuKernel*> kernels;
  for (const Kernel* kernel : arguments.kernel.kernels({})) kernels.push_back(&find_gpu_kernel(kernel->name));
  if (kernels.empty()) {
    throw BadInput("--kernel", "(none)", "must name a GPU kernel, or a command must follow --");
  }
  for (const SweepPoint& point : arguments.sweep.points(arguments.problem.problem())) {
    for (const GpuKernel* kernel : kernels) {
      Job job{kernel, point.problem, {}, {}, {}};
      if (!arguments.sweep.sets("dtype")) {
        job.problem = arguments.problem.in_type_of({&kernel->row}, point.problem);
      }
      job.options = point.apply_to(arguments.kernel.tuned_options(kernel->row, job.problem));
      job.directions = taken_directions(arguments, job, plan);
      if (job.directions.empty()) continue;
      job.passes = plan_passes(kernel->row, job.problem, job.directions, job.options, machine);
      plan.jobs.push_back(std::move(job));
    }
  }
  return plan;
}

std::vector<RowsJob> rows_jobs(const Plan& plan, const Machine& machine) {
  std::vector<RowsJob> jobs;
  for (const Job& job : plan.jobs) {
    for (const Direction direction : job.directions) {
      jobs.push_back({&job.kernel->row, job.problem, direction,
                      options_on(machine, job.kernel->row, job.problem, direction, job.options)});
    }
  }
  return jobs;
}

}  // namespace tilescope::cli
