// SPDX-License-Identifier: Apache-2.0
// Stands in for everything that launches kernels of its own in a build made without nvcc.
#include "common/errors.hpp"
#include "profiler/calibration/ceilings.hpp"
#include "profiler/calibration/self_test.hpp"

namespace tilescope {

SelfTest run_self_test() {
  throw MachineLacks("this build has no kernels to calibrate with: build the CUDA side (TILESCOPE_GPU=on)");
}

Ceilings measure_ceilings(CeilingChoice) {
  throw MachineLacks("this build has no kernels to measure with: build the CUDA side (TILESCOPE_GPU=on)");
}

}  // namespace tilescope
