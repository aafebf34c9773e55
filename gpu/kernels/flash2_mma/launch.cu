// SPDX-License-Identifier: Apache-2.0
// Which kernel of gpu:flash2-mma runs which pass.
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash2_mma/choices.hpp"
#include "gpu/kernels/flash2_mma/flash2_mma.hpp"
#include "gpu/kernels/flash2_mma/launch.hpp"
#include "gpu/launch/launch.cuh"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

sm80::Features needed_features(const TileProgram& program, const KernelArguments& arguments) {
  const bool dropout = program.problem.dropout > 0;
  if (program.bit_reads > 0) return sm80::Features::varied;
  if (arguments.kv_pages.entries) {
    return arguments.log.states ? sm80::Features::paged_observed : sm80::Features::paged;
  }
  const bool by_rows = arguments.log.states || arguments.key_lengths || !sm80::operands_in_chunks(arguments);
  if (!by_rows && takes_mma_values(program)) return sm80::Features::values;
  const bool general = by_rows || program.problem.value_dim() != program.problem.head_dim;
  if (program.diagonal_slices > 1) {
    return general ? sm80::Features::general_sliced : sm80::Features::sliced;
  }
  if (!general) return dropout ? sm80::Features::dropout : sm80::Features::plain;
  return dropout || program.name != PassName::forward ? sm80::Features::all : sm80::Features::general;
}

using Launch = void (*)(const TileProgram&, LaunchShape, const KernelArguments&, CUstream_st*);

template <sm80::Features kFeatures>
Launch launch_of(PassName pass) {
  if (pass == PassName::forward) return sm80::launch_flash2_mma_forward<kFeatures>;
  if (pass == PassName::dq) return sm80::launch_flash2_mma_dq<kFeatures>;
  return sm80::launch_flash2_mma_dkdv<kFeatures>;
}

Launch launch_of(PassName pass, sm80::Features features) {
  using enum sm80::Features;
  if constexpr (kHasTuner) {
    if (features == sliced) return launch_of<sliced>(pass);
    if (features == general_sliced) return launch_of<general_sliced>(pass);
  }
  if (sm80::cuts_tiles(features)) throw MachineLacks(std::string(kTunerLack));
  if (features == plain) return launch_of<plain>(pass);
  if (features == dropout) return launch_of<dropout>(pass);
  if (features == varied) return launch_of<varied>(pass);
  if (features == values) return launch_of<values>(pass);
  if (features == paged) return sm80::launch_flash2_mma_forward<paged>;
  if (features == paged_observed) return sm80::launch_flash2_mma_forward<paged_observed>;
  return features == general ? sm80::launch_flash2_mma_forward<general> : launch_of<all>(pass);
}

/// Which of the pass's shapes the program's tile is.
int choice_of(const TileProgram& program) {
  const int dim = mma_dim(program.problem);
  if (program.problem.dropout > 0 || program.bit_reads > 0) return 0;
  if (program.name == PassName::forward) return mma_forward_choices(dim).find(program.tile, program.launch);
  if (program.name == PassName::dq) return mma_dq_choices(dim).find(program.tile, program.launch);
  return mma_dkdv_choices(dim).find(program.tile, program.launch);
}

Launch normalised_launch() {
  if constexpr (kHasTuner) return sm80::launch_flash2_mma_forward_normalised;
  throw MachineLacks(std::string(kTunerLack));
}

Launch tuned_launch_of(PassName pass) {
  if constexpr (kHasTuner) {
    if (pass == PassName::forward) return sm80::launch_flash2_mma_forward_tuned;
    return pass == PassName::dq ? sm80::launch_flash2_mma_dq_tuned : sm80::launch_flash2_mma_dkdv_tuned;
  } else {
    throw MachineLacks(std::string(kTunerLack));
  }
}

}  // namespace

void Flash2Mma::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.name == PassName::delta) return launch_delta(program, arguments, stream);
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  const sm80::Features features = needed_features(program, arguments);
  // Observed, the two passes of a single launch are launched one by one: each has a log of its own. So they
  // are where each has tables of its own.
  if (program.single_launch && !arguments.log.states && features != sm80::Features::varied) {
    if (choice_of(program) > 0) {
      throw BadInput("tile",
                     std::to_string(program.tile.block_m) + "x" + std::to_string(program.tile.block_n),
                     "the single-launch order is compiled for the kernel's own tiles alone");
    }
    if (program.name == PassName::dq) return;  // the dkdv pass before took it along
    const LaunchShape shape = flash2_mma_launch_shape(program, compute_capability_major(), false);
    return features == sm80::Features::plain ? sm80::launch_flash2_mma_single_launch<sm80::Features::plain>(
                                                   program, shape, arguments, stream)
                                             : sm80::launch_flash2_mma_single_launch<sm80::Features::all>(
                                                   program, shape, arguments, stream);
  }
  const bool tuned = choice_of(program) > 0;
  if (tuned && features != sm80::Features::plain) {
    throw BadInput("tile", std::to_string(program.tile.block_m) + "x" + std::to_string(program.tile.block_n),
                   "only the kernel's own tile is compiled for padding and to be observed");
  }
  if (program.variant == Variant::normalised && features != sm80::Features::plain) {
    throw BadInput("variant", "normalised", "cannot be observed, and takes rows of 16-byte chunks");
  }
  const Launch launch = program.variant == Variant::normalised ? normalised_launch()
                        : tuned                                ? tuned_launch_of(program.name)
                                                               : launch_of(program.name, features);
  launch(program,
         flash2_mma_launch_shape(program, compute_capability_major(), features == sm80::Features::values),
         arguments, stream);
}

}  // namespace tilescope
