// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/elementwise/elementwise.hpp"

#include <stdexcept>

#include "cpu_ref/schedule/sum_slots.hpp"
#include "gpu/launch/launch.cuh"
#include "gpu/primitives/common/element.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/sm90/fences.cuh"

namespace tilescope {
namespace {

constexpr int kWarps = kElementwiseThreads / 32;

/// 16 bytes of elements, moved as one where a row allows it.
template <typename Element>
struct alignas(16) Chunk {
  static constexpr int kSize = 16 / sizeof(Element);
  Element x[kSize];
};

/// Rows of the largest tile of the delta pass.
constexpr int kMostDeltaRows = 256;

/// This thread's part of a sum over the CTA's threads, all of which enter. @return the sum, of thread 0
__device__ float sum_of_cta(float part) {
  __shared__ float sums[kWarps];
  for (int bit = 16; bit > 0; bit /= 2) part += __shfl_xor_sync(0xFFFFFFFFu, part, bit);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = part;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; threadIdx.x == 0 && warp < kWarps; ++warp) sum += sums[warp];
  return sum;
}

constexpr int kRowsInFlight = 4;  // of a lane: each takes a trip to memory

template <typename Part>
__device__ __forceinline__ void add_products(float& sum, const Part& a, const Part& b) {
  if constexpr (requires { a.x[0]; }) {
#pragma unroll
    for (int i = 0; i < Part::kSize; ++i) sum = fmaf(widen(a.x[i]), widen(b.x[i]), sum);
  } else {
    sum = fmaf(widen(a), widen(b), sum);
  }
}

template <bool kChunks>
__device__ __forceinline__ void clear_row(float* row, int cols, int lane, int lanes) {
  using Part = std::conditional_t<kChunks, float4, float>;
  constexpr int kWidth = sizeof(Part) / sizeof(float);
  for (int col = lane * kWidth; col < cols; col += lanes * kWidth)
    *reinterpret_cast<Part*>(row + col) = Part{};
}

/// `lanes` lanes a row; kChunks: each takes 16 bytes at a time, else one element. kSinks: the gradient of the
/// head's learned sink is summed, - sum of e^(sink - lse) * delta.
/// @param flags  of a q tile (DqStart), which are cleared in dq, and not dq_accum; 0: dq_accum is, if there
/// @param cols  of O and dO
template <typename Element, bool kChunks, bool kSinks>
__global__ void delta_pass(const __grid_constant__ KernelArguments args, int block_m, int lanes, int flags,
                           int cols) {
  using Part = std::conditional_t<kChunks, Chunk<Element>, Element>;
  constexpr int kWidth = sizeof(Part) / sizeof(Element);
  gpu::sm90::let_next_kernel_begin();
  const CtaWork work = query_work(args);
  const int batch = work.batch, head = work.first_head;
  const int thread = static_cast<int>(threadIdx.x);
  const int rows_at_once = kElementwiseThreads / lanes;
  const int begin = work.first_block * block_m, end = min_of(args.band.seqlen_q, begin + block_m);
  if (thread < flags)
    reinterpret_cast<int*>(args[TensorName::dq].row<Element>(batch, head, begin))[thread] = 0;
  const bool clears = flags == 0 && args[TensorName::dq_accum].data;
  __shared__ float deltas[kMostDeltaRows];  // a row's 4 bytes by themselves would be a partly written sector
  const auto row_of = [&](int first, int i) { return first + i * rows_at_once + thread / lanes; };
  // Every lane makes every turn, so that whole warps meet in the shuffles.
  for (int first = begin; first < end; first += kRowsInFlight * rows_at_once) {
    float sums[kRowsInFlight] = {};
    for (int col = thread % lanes * kWidth; col < cols; col += lanes * kWidth) {
      Part outs[kRowsInFlight], douts[kRowsInFlight];
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        const int row = row_of(first, i);
        if (row >= end) continue;
        const auto* out = args[TensorName::out].row<const Element>(batch, head, row);
        const auto* dout = args[TensorName::dout].row<const Element>(batch, head, row);
        outs[i] = *reinterpret_cast<const Part*>(out + col);
        douts[i] = *reinterpret_cast<const Part*>(dout + col);
      }
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        if (row_of(first, i) < end) add_products(sums[i], douts[i], outs[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      const int row = row_of(first, i);
      if (clears && row < end) {
        clear_row<kChunks>(args[TensorName::dq_accum].row<float>(batch, head, row), args.head_dim,
                           thread % lanes, lanes);
      }
      for (int bit = lanes / 2; bit > 0; bit /= 2) {
        sums[i] += __shfl_xor_sync(0xFFFFFFFFu, sums[i], bit);
      }
      if (row < end && thread % lanes == 0) deltas[row - begin] = sums[i];
    }
  }
  __shared__ float sink;
  if (kSinks && thread == 0) sink = __ldcg(args.score_mods.sinks + head);
  __syncthreads();
  float dsink = 0.0f;
  for (int row = begin + thread; row < end; row += kElementwiseThreads) {
    *args[TensorName::delta].row<float>(batch, head, row) = deltas[row - begin];
    if constexpr (kSinks) {
      const float lse = __ldcg(args[TensorName::lse].row<float>(batch, head, row));
      if (sink != kMinusInfinity) dsink -= __expf(sink - lse) * deltas[row - begin];
    }
  }
  if constexpr (kSinks) {
    dsink = sum_of_cta(dsink);
    if (thread == 0) atomicAdd(args.score_mods.dsinks + head, dsink);
  }
}

__global__ void zero_pass(const __grid_constant__ KernelArguments args, int block_n) {
  gpu::sm90::let_next_kernel_begin();
  const CtaWork work = kv_work(args);
  const int end = min_of(args.band.seqlen_k, work.end_block * block_n);
  for (int row = work.first_block * block_n + static_cast<int>(threadIdx.x) / 32; row < end; row += kWarps) {
    auto* dk = args[TensorName::dk_accum].row<float>(work.batch, work.kv_head, row);
    auto* dv = args[TensorName::dv_accum].row<float>(work.batch, work.kv_head, row);
    for (int col = static_cast<int>(threadIdx.x) % 32; col < args.head_dim; col += 32) {
      dk[col] = 0.0f;
      dv[col] = 0.0f;
    }
  }
  gpu::sm90::wait_for_kernel_before();  // the kernel after this one waits for both
}

/// One tensor to be rounded: target = factor * the sum of the source's slots.
struct Conversion {
  DeviceTensor source, target;
  float factor;
};
struct ConvertArguments {
  KernelArguments common;
  Conversion conversions[2];
  int count = 0;
  int heads, block_rows, seqlen;
  TileShape tile;              // of the pass that made the sums
  bool sums_may_lack = false;  // of q tiles that see no key, or of kv tiles slots
  DqSlots dq_slots;
  int blocks_of_tile = 1;  // of this pass, in a q tile of that one
  int slots = 1;           // of dK and dV
  int batches = 1;
};

/// Four elements, stored as one.
template <typename Element>
struct alignas(4 * sizeof(Element)) Four {
  Element x[4];
};

template <typename Element>
__device__ __forceinline__ void store_rounded(Element* target, float sum, float factor) {
  *target = narrow<Element>(sum * factor);
}
template <typename Element>
__device__ __forceinline__ void store_rounded(Element* target, const float4& sums, float factor) {
  *reinterpret_cast<Four<Element>*>(target) = {
      narrow<Element>(sums.x * factor), narrow<Element>(sums.y * factor), narrow<Element>(sums.z * factor),
      narrow<Element>(sums.w * factor)};
}

__device__ __forceinline__ void add_sum(float& sum, float more) { sum += more; }
__device__ __forceinline__ void add_sum(float4& sum, const float4& more) {
  sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
}

/// In their order, the loads of kAtOnce under way together: behind the last slot of it again, since ptxas
/// makes the first sum before loads that may not be.
template <int kAtOnce, typename Sum>
__device__ __forceinline__ Sum sum_of_slots(const float* first, std::int64_t apart, int slots) {
  Sum sum = *reinterpret_cast<const Sum*>(first);
  for (int slot = 1; slot < slots; slot += kAtOnce) {
    Sum more[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      more[i] = *reinterpret_cast<const Sum*>(first + min_of(slot + i, slots - 1) * apart);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (slot + i < slots) add_sum(sum, more[i]);
    }
  }
  return sum;
}

/// kChunks: a lane takes four sums at a time. Lanes go on from row to row, so that a request has whole
/// sectors, none is read twice, and no lane rests.
template <typename Element, bool kChunks>
__global__ void convert_pass(const __grid_constant__ ConvertArguments args) {
  using Sum = std::conditional_t<kChunks, float4, float>;
  constexpr int kWidth = sizeof(Sum) / sizeof(float), kInFlight = 4;
  // Whichever heads the tensors have, the grid counts those.
  const CtaWork work = cta_work(args.common.grid, {args.heads, 1}, CtaHeads::query, 1, work_item());
  const int batch = work.batch, head = work.first_head, first_row = work.first_block * args.block_rows;
  const int parts = args.common.head_dim / kWidth;  // of a row
  const int end = (min_of(args.seqlen, work.end_block * args.block_rows) - first_row) * parts;
  gpu::sm90::let_next_kernel_begin();
  gpu::sm90::wait_for_kernel_before();
  const int slots =
      args.sums_may_lack
          ? args.dq_slots.filled(
                kv_tiles(args.common.band, args.tile, work.first_block / args.blocks_of_tile).count())
          : args.slots;
  if (slots > 1) {  // the tensors beside each other
    for (int at = static_cast<int>(threadIdx.x); at < args.count * end; at += kElementwiseThreads) {
      const Conversion& of = args.conversions[at / end];
      const int row = first_row + at % end / parts, col = at % end % parts * kWidth;
      const float* const source = of.source.row<const float>(batch, head, row) + col;
      const std::int64_t apart = args.batches * of.source.batch_stride;
      const Sum sum = slots <= 3 ? sum_of_slots<2, Sum>(source, apart, slots)
                                 : sum_of_slots<8, Sum>(source, apart, slots);
      store_rounded(of.target.row<Element>(batch, head, row) + col, sum, of.factor);
    }
    return;
  }
  for (int i = 0; i < args.count; ++i) {
    const Conversion& of = args.conversions[i];
    for (int first = static_cast<int>(threadIdx.x); first < end; first += kInFlight * kElementwiseThreads) {
      Sum sums[kInFlight] = {};
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const int part = first + k * kElementwiseThreads, row = first_row + part / parts;
        if (part >= end || slots == 0) continue;
        sums[k] = *reinterpret_cast<const Sum*>(of.source.row<const float>(batch, head, row) +
                                                part % parts * kWidth);
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const int part = first + k * kElementwiseThreads, row = first_row + part / parts;
        if (part >= end) continue;
        store_rounded(of.target.row<Element>(batch, head, row) + part % parts * kWidth, sums[k], of.factor);
      }
    }
  }
}

}  // namespace

namespace {
/// As delta_pass() has it; -1: neither, where each kv tile stores to a slot of its own.
int flags_to_clear(const TileProgram& program) {
  if (program.dq_start == DqStart::cleared) return 0;
  return program.dq_flags > 0 ? program.dq_flags : -1;
}
}  // namespace

void launch_delta(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const int cols = static_cast<int>(program.problem.value_dim());
  const bool chunks =
      cols % 8 == 0 && rows_in_chunks(arguments, arguments[TensorName::out], arguments[TensorName::dout],
                                      arguments[TensorName::dq_accum]);
  if (program.tile.block_m > kMostDeltaRows)
    throw std::logic_error("the delta pass has no room for its tile");
  float* const dsinks = arguments.score_mods.dsinks;
  if (dsinks) {
    check_cuda(cudaMemsetAsync(dsinks, 0, static_cast<std::size_t>(arguments.heads) * sizeof(float), stream),
               "clearing dsink");
  }
  dispatch_element(program.problem.dtype, [&]<typename Element>() {
    const auto kernel = dsinks ? (chunks ? delta_pass<Element, true, true> : delta_pass<Element, false, true>)
                        : chunks ? delta_pass<Element, true, false>
                                 : delta_pass<Element, false, false>;
    launch_grid(kernel, program, {kElementwiseThreads, 0}, stream, arguments, program.tile.block_m,
                lanes_of_row(cols, chunks ? Chunk<Element>::kSize : 1), flags_to_clear(program), cols);
  });
}

void launch_init(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream,
                 bool early) {
  CtaGrid grid = cta_for_each_item(program);
  grid.early = early;
  launch_ctas(zero_pass, program.name, grid, {kElementwiseThreads, 0}, stream, arguments,
              program.tile.block_n);
}

void launch_convert(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream,
                    bool early) {
  const bool by_query = program.axis == Axis::q;
  ConvertArguments convert{.common = arguments,
                           .heads = by_query ? arguments.heads : arguments.heads_kv,
                           .block_rows = by_query ? program.tile.block_m : program.tile.block_n,
                           .seqlen = by_query ? arguments.band.seqlen_q : arguments.band.seqlen_k,
                           .tile = program.tile,
                           .sums_may_lack = program.dq_start != DqStart::cleared,
                           .dq_slots = dq_slots(program),
                           .batches = static_cast<int>(program.problem.batch)};
  if (adds_slots(program)) {
    (by_query ? convert.blocks_of_tile : convert.slots) = program.splits.tiles;
    if (by_query) convert.tile.block_m *= program.splits.tiles;
  }
  const std::vector<Operand>& sources = adds_slots(program) ? program.phases.front() : program.prologue;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const TensorName source = sources[i].tensor, target = program.epilogue[i].tensor;
    const bool scaled = source == TensorName::dq_accum || source == TensorName::dk_accum;
    convert.conversions[convert.count++] = {arguments[source], arguments[target],
                                            scaled ? arguments.softmax_scale : 1.0f};
  }
  bool chunks = true;
  for (int i = 0; i < convert.count; ++i) {
    chunks =
        chunks && rows_in_chunks(arguments, convert.conversions[i].source, convert.conversions[i].target);
  }
  CtaGrid grid = cta_for_each_item(program);
  grid.early = early;
  dispatch_element(program.problem.dtype, [&]<typename Element>() {
    launch_ctas(chunks ? convert_pass<Element, true> : convert_pass<Element, false>, program.name, grid,
                {kElementwiseThreads, 0}, stream, convert);
  });
}

}  // namespace tilescope
