// SPDX-License-Identifier: Apache-2.0
// What can be told about the GPU kernels without a device: their rows, tiles, budgets and refusals.
#include "gpu/registry/kernel_registry.hpp"

#include <doctest/doctest.h>

#include <set>

#include "cpu_ref/numeric/random_inputs.hpp"
#include "gpu/kernels/flash2_mma/flash2_mma.hpp"
#include "gpu/kernels/flash2_simt/flash2_simt.hpp"
#include "gpu/kernels/split_k/split_k.hpp"
#include "gpu/registry/head_dim.hpp"

namespace tilescope {
namespace {

// CUDA C++ Programming Guide, table of technical specifications per compute capability.
constexpr std::int64_t kSharedBytesPerCtaSm80 = 163 * 1024;
constexpr std::int64_t kSharedBytesPerCtaSm90 = 227 * 1024;
constexpr std::int64_t kSharedBytesPerSmSm90 = 228 * 1024;
constexpr std::int64_t kSharedBytesReservedPerCta = 1024;

/// Every combination of compiled and uncompiled head dimensions with the element types a rung takes.
template <typename Visit>
void for_each_shape(const GpuKernel& rung, Visit&& visit) {
  for (int head_dim : {1, 15, 16, 17, 32, 64, 65, 96, 128, 129, 192, 200, 256}) {
    for (ElementType dtype : kElementTypes) {
      AttentionProblem problem{
          .heads = 4, .heads_kv = 2, .seqlen_q = 333, .seqlen_k = 500, .head_dim = head_dim, .dtype = dtype};
      problem.causal = head_dim % 2 == 0;
      const ProgramOptions options = rung.row.default_options(problem);
      if (rung.row.refusal(problem, Direction::forward, options)) continue;
      visit(problem, options);
    }
  }
}

/// The passes of both directions, the backward ones in every order that the rung has.
std::vector<TileProgram> all_programs(const GpuKernel& rung, const AttentionProblem& problem,
                                      ProgramOptions options) {
  std::vector<TileProgram> all = rung.row.programs(Direction::forward, problem, options);
  std::vector<BackwardOrder> orders = rung.row.backward_orders;
  if (orders.empty()) orders.push_back(options.backward);
  for (BackwardOrder order : orders) {
    options.backward = order;
    if (rung.row.refusal(problem, Direction::backward, options)) continue;
    for (TileProgram& program : rung.row.programs(Direction::backward, problem, options)) {
      all.push_back(std::move(program));
    }
  }
  return all;
}

TEST_CASE("every rung has a row with its own name, and is found by it") {
  std::set<std::string_view> names;
  REQUIRE(!gpu_kernels().empty());
  for (const GpuKernel& rung : gpu_kernel_rungs()) {
    CAPTURE(rung.row.name);
    CHECK(rung.row.name.substr(0, 4) == "gpu:");
    CHECK(!rung.row.summary.empty());
    CHECK(names.insert(rung.row.name).second);
    CHECK(&find_gpu_kernel(rung.row.name) == &rung);
    CHECK((rung.row.run != nullptr) == kHasCuda);
    CHECK((rung.launch != nullptr) == kHasCuda);
  }
  CHECK(names.size() == gpu_kernels().size());
  CHECK_THROWS_WITH_AS(find_gpu_kernel("gpu:flash9"), doctest::Contains("gpu:flash2-simt"), BadInput);
}

TEST_CASE(
    "every rung of the ladder takes fp32 or a narrower type in both directions, at every head dimension") {
  for (const GpuKernel& rung : gpu_ladder()) {
    CAPTURE(rung.row.name);
    std::set<std::int64_t> head_dims;
    for_each_shape(rung, [&](const AttentionProblem& problem, const ProgramOptions& options) {
      head_dims.insert(problem.head_dim);
      if (!is_fp8(problem.dtype)) CHECK(!rung.row.refusal(problem, Direction::backward, options));
    });
    CHECK(head_dims.size() == 13);
  }
}

TEST_CASE("the split over keys is there for one tile shape, forward, that gpu:flash2-mma has too") {
  const GpuKernel& split_k = find_gpu_kernel(SplitK::name);
  AttentionProblem problem{.head_dim = 64, .dtype = ElementType::fp16};
  const ProgramOptions own = split_k.row.default_options(problem);
  CHECK(!split_k.reason(problem, Direction::forward, own));
  CHECK(!find_gpu_kernel(Flash2Mma::name).reason(problem, Direction::forward, own));
  CHECK(split_k.reason(problem, Direction::backward, own));
  problem.dropout = 0.1;
  CHECK(split_k.reason(problem, Direction::forward, own));
}

TEST_CASE("every pass fits the SM of the oldest architecture") {
  for (const GpuKernel& rung : gpu_kernel_rungs()) {
    for_each_shape(rung, [&](const AttentionProblem& problem, const ProgramOptions& options) {
      for (const TileProgram& program : all_programs(rung, problem, options)) {
        CAPTURE(rung.row.name);
        CAPTURE(describe(problem));
        CAPTURE(to_string(program.name));
        const LaunchShape shape = rung.row.launch_shape(program);
        CHECK(shape.threads_per_cta >= 32);
        CHECK(shape.threads_per_cta <= 1024);
        CHECK(shape.threads_per_cta % 32 == 0);
        CHECK(shape.shared_bytes >= 0);
        // flash2-mma states its shape on sm_90; flash2_mma_shapes_test.cpp knows the one on sm_80.
        const bool takes_all_of_sm90 = rung.row.name == Flash2Mma::name;
        CHECK(shape.shared_bytes <= (takes_all_of_sm90 ? kSharedBytesPerCtaSm90 : kSharedBytesPerCtaSm80));
      }
    });
  }
}

TEST_CASE("rows of S, P and dP that do not fit an SM are counted as often as gpu:standard reads them") {
  const Kernel& standard = find_gpu_kernel("gpu:standard").row;
  const auto row_reads = [&](Direction direction, PassName name, std::int64_t seqlen) {
    AttentionProblem problem{.seqlen_q = seqlen, .seqlen_k = seqlen, .head_dim = 64};
    for (const TileProgram& program :
         standard.programs(direction, problem, standard.default_options(problem))) {
      if (program.name != name) continue;
      std::size_t reads = 0;
      for (const auto& phase : program.phases) {
        for (const Operand& operand : phase) reads += operand.kind == AccessKind::load ? 1 : 0;
      }
      return reads;
    }
    return std::size_t{0};
  };
  CHECK(row_reads(Direction::forward, PassName::softmax, 40960) == 1);
  CHECK(row_reads(Direction::forward, PassName::softmax, 40964) == 3);
  CHECK(row_reads(Direction::backward, PassName::dscores, 20480) == 2);  // P and dP
  CHECK(row_reads(Direction::backward, PassName::dscores, 20484) == 4);
}

TEST_CASE("two CTAs of flash2-simt's forward pass share an SM of sm_90 up to head_dim 192") {
  const GpuKernel& rung = find_gpu_kernel(Flash2Simt::name);
  for_each_shape(rung, [&](const AttentionProblem& problem, const ProgramOptions& options) {
    for (const TileProgram& program : rung.row.programs(Direction::forward, problem, options)) {
      CAPTURE(describe(problem));
      const LaunchShape shape = rung.row.launch_shape(program);
      CHECK(shape.ctas_per_sm == (problem.head_dim <= 192 ? 2 : 1));
      CHECK(shape.ctas_per_sm * (shape.shared_bytes + kSharedBytesReservedPerCta) <= kSharedBytesPerSmSm90);
    }
  });
}

TEST_CASE("a refusal names the kernel, the reason and what takes the problem instead") {
  AttentionProblem problem{.heads = 2, .heads_kv = 2, .seqlen_q = 64, .seqlen_k = 64, .head_dim = 64};
  const Kernel& simt = find_gpu_kernel("gpu:flash2-simt").row;
  SUBCASE("element type") {
    problem.dtype = ElementType::fp16;
    const auto refusal = simt.refusal(problem, Direction::forward, simt.default_options(problem));
    REQUIRE(refusal);
    CHECK(refusal->find("gpu:flash2-simt computes fp32 only, not fp16") == 0);
    CHECK(refusal->find("gpu:standard") != std::string::npos);
    CHECK(refusal->find("gpu:flash1") != std::string::npos);
  }
  SUBCASE("tile shape") {
    ProgramOptions options = simt.default_options(problem);
    options.forward_tile = {48, 24};
    const auto refusal = simt.refusal(problem, Direction::forward, options);
    REQUIRE(refusal);
    CHECK(refusal->find("not 48x24") != std::string::npos);
    CHECK(!simt.refusal(problem, Direction::backward, options));
  }
  SUBCASE("fp8 has no backward pass on any rung") {
    problem.dtype = ElementType::fp8e4m3;
    for (const GpuKernel& rung : gpu_kernel_rungs()) {
      CAPTURE(rung.row.name);
      const auto refusal = rung.row.refusal(problem, Direction::backward, rung.row.default_options(problem));
      REQUIRE(refusal);
      CHECK(refusal->find(rung.row.name) == 0);
    }
  }
}

TEST_CASE("head dimensions are padded up to the next compiled one") {
  CHECK(padded_head_dim(1) == 16);
  for (int compiled : kCompiledHeadDims) {
    CHECK(padded_head_dim(compiled) == compiled);
    CHECK(padded_head_dim(compiled - 1) == compiled);
    int dispatched = 0;
    dispatch_head_dim(compiled, [&]<int Dim>() { dispatched = Dim; });
    CHECK(dispatched == compiled);
  }
}

TEST_CASE("without a device a kernel says what is missing, and leaves the tensors alone") {
  const auto lack = device_lack();
  if (!lack) return;  // this machine has one: the device tests run instead
  CHECK(lack->find("cpu: kernels") != std::string::npos);
  const AttentionProblem problem{.seqlen_q = 8, .seqlen_k = 8, .head_dim = 16};
  for (const GpuKernel& rung : gpu_kernel_rungs()) {
    if (!rung.row.run) continue;
    AttentionProblem taken = problem;
    if (rung.reason(taken, Direction::forward, rung.row.default_options(taken))) {
      taken.dtype = ElementType::fp16;
    }
    TensorSet tensors(taken);
    fill_random_inputs(tensors, Direction::forward);
    CHECK_THROWS_AS(rung.row.run(rung.row.default_options(taken), Direction::forward, tensors, nullptr),
                    MachineLacks);
    CHECK(!tensors.has(TensorName::out));
  }
}

}  // namespace
}  // namespace tilescope
