// SPDX-License-Identifier: Apache-2.0
#include "distributed/processes/launcher.hpp"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "common/errors.hpp"

namespace tilescope {
namespace {

constexpr int kPort = 29600;  // without any variable

struct Launcher {
  const char *rank, *ranks, *local_rank;
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}};

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

}  // namespace

ProcessPlace launched_process() {
  constexpr int kMost = 1 << 20, kPorts = 65535;
  ProcessPlace place;
  for (const Launcher& launcher : kLaunchers) {
    const auto ranks = number_in(launcher.ranks, 1, kMost);
    if (!ranks) continue;
    const auto rank = number_in(launcher.rank, 0, *ranks - 1);
    if (!rank) continue;
    place.rank = *rank;
    place.ranks = *ranks;
    place.local_rank = number_in(launcher.local_rank, 0, kMost).value_or(*rank);
    const char* const host = std::getenv("MASTER_ADDR");
    place.host = host != nullptr ? host : "127.0.0.1";
    const auto after = number_in("MASTER_PORT", 1, kPorts - 1);
    place.port = number_in("TILESCOPE_PORT", 1, kPorts).value_or(after ? *after + 1 : kPort);
    return place;
  }
  throw BadInput(
      "--processes", "given",
      "must stand where a launcher starts a process for each GPU: torchrun --no-python, mpirun or srun; "
      "RANK and WORLD_SIZE are not set");
}

}  // namespace tilescope
