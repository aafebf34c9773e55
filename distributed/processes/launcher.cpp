// SPDX-License-Identifier: Apache-2.0
#include "distributed/processes/launcher.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "common/errors.hpp"

namespace tilescope {
namespace {

constexpr int kMost = 1 << 20;

constexpr LauncherVariables kLaunchers[] = {
    {"RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}},
    {"OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", ""}},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"", "", ""}},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", {"SLURM_JOB_ID", "SLURM_STEP_ID", ""}}};

std::optional<int> number_in(const char* name, int least, int most) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = text;
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc{} && end == digits.data() + digits.size() && value >= least && value <= most)
    return value;
  throw BadInput(name, text,
                 "must be a number from " + std::to_string(least) + " to " + std::to_string(most));
}

bool on_several_hosts(const LauncherVariables& launcher, int ranks) {
  return number_in(launcher.local_ranks, 1, kMost).value_or(ranks) < ranks ||
         (launcher.rank == std::string_view("SLURM_PROCID") &&
          number_in("SLURM_STEP_NUM_NODES", 1, kMost).value_or(1) > 1);
}

/// The same for all processes of a job, and other than that of any other job of this user on this host.
std::string name_of_job(const LauncherVariables& launcher) {
  std::string name;
  for (const char* const variable : launcher.job) {
    const std::string_view text = std::getenv(variable) != nullptr ? std::getenv(variable) : "";
    if (!text.empty())
      name += "-" + std::string(text.substr(text.size() - std::min<std::size_t>(text.size(), 64)));
  }
  if (name.empty()) name = "-of-" + std::to_string(getppid());
  for (char& letter : name) {
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '-';
  }
  return "tilescope-" + std::to_string(geteuid()) + name;
}

std::filesystem::path meeting_folder(const LauncherVariables& launcher, int ranks) {
  const char* const named = std::getenv("TILESCOPE_RENDEZVOUS");
  if (named != nullptr && *named != '\0') return std::filesystem::path(named) / "tilescope-ranks";
  if (!on_several_hosts(launcher, ranks))
    return std::filesystem::temp_directory_path() / name_of_job(launcher);
  throw MachineLacks(
      "processes of several hosts need a folder that all hosts see, with locks, to meet in: "
      "TILESCOPE_RENDEZVOUS can name one; processes of one host need none");
}

}  // namespace

std::span<const LauncherVariables> launcher_variables() { return kLaunchers; }

ProcessPlace launched_process() {
  for (const LauncherVariables& launcher : kLaunchers) {
    const auto ranks = number_in(launcher.ranks, 1, kMost);
    if (!ranks) continue;
    const auto rank = number_in(launcher.rank, 0, *ranks - 1);
    if (!rank) continue;
    return {.rank = *rank,
            .ranks = *ranks,
            .local_rank = number_in(launcher.local_rank, 0, kMost).value_or(*rank),
            .folder = meeting_folder(launcher, *ranks)};
  }
  throw BadInput(
      "--processes", "given",
      "must stand where a launcher starts a process for each GPU: torchrun --no-python, mpirun or srun; "
      "RANK and WORLD_SIZE are not set");
}

}  // namespace tilescope
