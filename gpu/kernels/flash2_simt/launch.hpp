// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:flash2-simt, one .cu file each, so that they compile side by side. Each pass has a fast
// build and one with all features: dropout, a negative scale and the tile log.
#pragma once

#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

void launch_flash2_simt_forward(const TileProgram&, const KernelArguments&, CUstream_st*);
void launch_flash2_simt_forward_all_features(const TileProgram&, const KernelArguments&, CUstream_st*);
/// dkdv, dkdvdq, dq and dqdkdv.
void launch_flash2_simt_backward(const TileProgram&, const KernelArguments&, CUstream_st*);
void launch_flash2_simt_backward_all_features(const TileProgram&, const KernelArguments&, CUstream_st*);

}  // namespace tilescope
