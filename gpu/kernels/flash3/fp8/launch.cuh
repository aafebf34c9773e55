// SPDX-License-Identifier: Apache-2.0
// From a pass's arguments to a launch of flash3's forward pass in fp8.
#pragma once

#include "gpu/kernels/flash3/forward/launch.cuh"
#include "gpu/kernels/flash3/fp8/arguments.cuh"

namespace tilescope::gpu {

template <Flash3Fp8Shape kShape>
Flash3Fp8Arguments flash3_fp8_arguments(const KernelArguments& args, const SplitKeys& splits = {}) {
  Flash3Fp8Arguments out{};
  static_cast<Flash3ForwardArguments&>(out) = flash3_common_arguments(args, args.head_dim, splits);
  const auto map = [&](TensorName name, int heads, int rows, int box_rows) {
    return sm90::encode_tensor_map(flash3_map(sm90::MapElement::bytes, args[name], out.batches, heads, rows,
                                              args.head_dim, box_rows, kShape.width()),
                                   args[name].data);
  };
  out.q = map(TensorName::q, args.heads, args.band.seqlen_q, 64);
  out.k = map(TensorName::k, args.heads_kv, args.band.seqlen_k, kShape.tile.block_n);
  out.v = map(TensorName::v, args.heads_kv, args.band.seqlen_k, kShape.tile.block_n);
  out.descale_q = {args.descale_q};
  out.descale_k = {args.descale_k};
  out.descale_v = {args.descale_v};
  return out;
}

/// Enqueues the pass on `sms` multiprocessors. Compiled once for each type and Flash3Fp8Choice, and to be
/// observed, for sm_90a.
template <sm90::WgmmaType kType, typename Choice, bool kObserved = false>
void launch_flash3_fp8_forward(const Flash3Fp8Arguments& arguments, int sms, cudaStream_t stream);

}  // namespace tilescope::gpu
