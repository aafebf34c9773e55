// SPDX-License-Identifier: Apache-2.0
// This process among those that a launcher started, one a GPU, by the variables that it sets.
#pragma once

#include <string>

namespace tilescope {

struct ProcessPlace {
  int rank = 0, ranks = 1;
  int local_rank = 0;  // among those of this host
  std::string host;    // of rank 0, where the others reach it
  int port = 0;
};

/// Of torchrun (RANK), Open MPI (OMPI_COMM_WORLD_RANK), MPICH (PMI_RANK) or Slurm (SLURM_PROCID). MASTER_ADDR
/// names the host of rank 0, else it is this one; its port is TILESCOPE_PORT, else the one after MASTER_PORT.
/// @throws BadInput where none of them is set, or a number is none
ProcessPlace launched_process();

}  // namespace tilescope
