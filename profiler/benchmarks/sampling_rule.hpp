// SPDX-License-Identifier: Apache-2.0
// When a round of samples of one kernel on a device ends; the same for our kernels and for the peers.
#pragma once

namespace tilescope {

struct SamplingRule {
  int warm_up = 2;            // runs before the first sample
  int min_samples = 5;        // before the noise is asked
  int max_samples = 20;       // of a round
  double max_noise = 0.005;   // relative standard deviation at which sampling stops, 1.0 = 100 %
  double min_time_s = 0.005;  // of all samples together
  double time_limit_s = 0.5;  // wall time after which sampling stops whatever the noise
};

}  // namespace tilescope
