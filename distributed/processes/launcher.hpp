// SPDX-License-Identifier: Apache-2.0
// What a process learns of its place from who started it with others: torchrun, Open MPI, MPICH or Slurm.
#pragma once

#include <array>
#include <filesystem>
#include <span>

namespace tilescope {

/// The environment variables that a launcher sets; "": none.
struct LauncherVariables {
  const char *rank, *ranks, *local_rank, *local_ranks;
  std::array<const char*, 3> job;  // together they tell its jobs apart
};
std::span<const LauncherVariables> launcher_variables();

/// This process among those that a launcher started, one a GPU.
struct ProcessPlace {
  int rank = 0, ranks = 1;
  int local_rank = 0;            // among those of this host
  std::filesystem::path folder;  // where all of them meet, made by rank 0
};

/// The process as torchrun (RANK), Open MPI (OMPI_COMM_WORLD_RANK), MPICH (PMI_RANK) or Slurm (SLURM_PROCID)
/// numbers it. Processes meet below TILESCOPE_RENDEZVOUS, a folder that all hosts see; on one host, without
/// it, below that for temporary files, under the launcher's number of the job.
/// @throws BadInput where none of them is set, or a number is none; MachineLacks where several hosts have no
/// folder
ProcessPlace launched_process();

}  // namespace tilescope
