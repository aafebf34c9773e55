// SPDX-License-Identifier: Apache-2.0
#include "python/native/arrays.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "analysis/model/counts/tensor_bytes.hpp"
#include "common/memory_budget.hpp"
#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/numeric/descales.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::python {
namespace {

bool given(const HostArray& array) { return std::get<0>(array) != 0; }

/// Address of each row of a host array, in C order, beside the row's number.
template <typename Act>
void for_each_row(const Shape& shape, const HostArray& array, int bytes, const Act& act) {
  const auto& [address, strides] = array;
  std::int64_t number = 0;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      for (std::int64_t n = 0; n < shape.rows; ++n) {
        const std::int64_t offset = b * strides[0] + h * strides[1] + n * strides[2];
        act(number++, reinterpret_cast<std::byte*>(address) + offset * bytes);
      }
    }
  }
}

/// Copies `count` elements of `bytes` between places whose elements lie so many apart.
void copy_row(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
              std::int64_t count, int bytes) {
  if (to_stride == 1 && from_stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count * bytes));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride * bytes, from + i * from_stride * bytes, static_cast<std::size_t>(bytes));
  }
}

Shape shape_of(const TensorExtent& extent) { return {extent.batch, extent.heads, extent.rows, extent.cols}; }

Tensor copied(const TensorExtent& extent, const HostArray& array) {
  Tensor tensor(shape_of(extent), extent.dtype);
  auto* const to = static_cast<std::byte*>(tensor.data());
  for_each_row(tensor.shape(), array, extent.element_bytes, [&](std::int64_t row, const std::byte* from) {
    copy_row(to + row * extent.cols * extent.element_bytes, 1, from, std::get<1>(array)[3], extent.cols,
             extent.element_bytes);
  });
  return tensor;
}

void copy_in(TensorSet& tensors, TensorName name, const HostArray& array) {
  tensors[name] = copied(tensor_extent(tensors.problem(), name), array);
}

/// Whether a CPU kernel can compute on it where it is: the elements of a row stand side by side, and so do
/// rows of one element, which are taken many at once.
bool in_place(const Kernel& kernel, const TensorExtent& extent, const HostArray& array) {
  const auto& [address, strides] = array;
  const bool forwards = strides[0] >= 0 && strides[1] >= 0 && strides[2] >= 0;
  const bool side_by_side = strides[3] == 1 && (extent.cols > 1 || strides[2] == 1);
  return !kernel.on_gpu() && given(array) && side_by_side && forwards &&
         address % static_cast<std::uintptr_t>(extent.element_bytes) == 0;
}

/// Copies nothing, where the kernel can do without: of a large problem copies, and pages touched for them,
/// cost more than the products.
Tensor view(const TensorExtent& extent, const HostArray& array) {
  const auto& [address, strides] = array;
  return Tensor::view(shape_of(extent), extent.dtype, reinterpret_cast<void*>(address),
                      {strides[0], strides[1], strides[2]});
}

/// Lets results be written where they belong.
void view_output(const Kernel& kernel, TensorSet& tensors, TensorName name, const HostArray& array) {
  const TensorExtent extent = tensor_extent(tensors.problem(), name);
  if (in_place(kernel, extent, array)) tensors[name] = view(extent, array);
}

Tensor taken(const Kernel& kernel, const TensorExtent& extent, const HostArray& array) {
  return in_place(kernel, extent, array) ? view(extent, array) : copied(extent, array);
}

void take_input(const Kernel& kernel, TensorSet& tensors, TensorName name, const HostArray& array) {
  tensors[name] = taken(kernel, tensor_extent(tensors.problem(), name), array);
}

void take_pool(const Kernel& kernel, TensorSet& tensors, TensorName name, const HostArray& array) {
  tensors.pool(name) = taken(kernel, pool_extent(tensors.problem(), name, tensors.kv_pages()), array);
}

/// @param data in C order
void copy_out(const Shape& shape, const void* data, int bytes, const HostArray& array) {
  if (!given(array)) return;
  const auto* const from = static_cast<const std::byte*>(data);
  for_each_row(shape, array, bytes, [&](std::int64_t row, std::byte* to) {
    copy_row(to, std::get<1>(array)[3], from + row * shape.cols * bytes, 1, shape.cols, bytes);
  });
}

/// Unless the results are there already.
void copy_out(const TensorSet& tensors, TensorName name, const HostArray& array) {
  const Tensor& tensor = tensors[name];
  if (!tensor.owns_memory()) return;
  copy_out(tensor.shape(), tensor.data(), element_bytes(tensor.dtype()), array);
}

void copy_out(const TensorSet& tensors, const ExactAttention& exact, TensorName name,
              const HostArray& array) {
  const TensorExtent extent = tensor_extent(tensors.problem(), name);
  copy_out(shape_of(extent), exact[name].data(), sizeof(double), array);
}

using GivenArrays = std::initializer_list<std::pair<TensorName, const HostArray*>>;

/// The kernel, once it is known to take the problem and to find the memory that is not given in place.
const Kernel& ready_kernel(const AttentionProblem& problem, const KernelUse& use, Direction direction,
                           ProgramOptions& options, const GivenArrays& arrays) {
  const Kernel& kernel = find_kernel(use.kernel);
  options = options_of(kernel, problem, use);
  require_supported(kernel, problem, direction, options);
  require_runnable(kernel);
  std::int64_t bytes = tensor_bytes(kernel.programs(direction, problem, options));
  for (const auto& [name, array] : arrays) {
    const TensorExtent extent = tensor_extent(problem, name);
    if (in_place(kernel, extent, *array)) bytes -= extent.bytes();
  }
  require_memory(bytes, fmt::format("{} on {}", kernel.name, describe(problem)));
  return kernel;
}

/// Runs a direction. @return how long it took [s]
double run_kernel(const Kernel& kernel, const ProgramOptions& options, Direction direction,
                  TensorSet& tensors) {
  const auto start = std::chrono::steady_clock::now();
  kernel.run(options, direction, tensors, nullptr);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void take_inputs(const Kernel& kernel, TensorSet& tensors, const HostArray& q, const HostArray& k,
                 const HostArray& v) {
  take_input(kernel, tensors, TensorName::q, q);
  take_input(kernel, tensors, TensorName::k, k);
  take_input(kernel, tensors, TensorName::v, v);
}

/// For the judge, which reads in C order.
void copy_inputs(TensorSet& tensors, const HostArray& q, const HostArray& k, const HostArray& v) {
  copy_in(tensors, TensorName::q, q);
  copy_in(tensors, TensorName::k, k);
  copy_in(tensors, TensorName::v, v);
}

/// Those that are given, and the others as the problem makes them.
void take_descales(TensorSet& tensors, const GivenDescales& descales) {
  const AttentionProblem& problem = tensors.problem();
  for (const TensorName name : {TensorName::q, TensorName::k, TensorName::v}) {
    const HostArray& array = descales[static_cast<std::size_t>(name)];
    if (descale_of(problem, name).from != Descale::From::given || !given(array)) {
      tensors.descales(name) = make_descales(problem, name);
      continue;
    }
    Tensor taken(descale_shape(problem, name), ElementType::fp32);
    for_each_row(taken.shape(), array, sizeof(float), [&](std::int64_t row, const std::byte* from) {
      copy_row(static_cast<std::byte*>(taken.data()) + row * taken.shape().cols * 4, 1, from,
               std::get<1>(array)[3], taken.shape().cols, sizeof(float));
    });
    for (std::int64_t i = 0; i < taken.shape().elements(); ++i) {
      const float value = taken.floats()[i];
      if (value >= kLeastDescale && value <= kMostDescale) continue;
      throw BadInput("descale_" + std::string(to_string(name)), fmt::format("{}", value),
                     "must lie in 1e-6 ... 1e6");
    }
    tensors.descales(name) = std::move(taken);
  }
}

void take_numbers(TensorSet& tensors, const GivenNumbers& numbers) {
  fill_score_operands(tensors);
  const TensorName names[] = {TensorName::alibi_slopes, TensorName::sink};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (tensors.has(names[i]) && given(numbers[i])) copy_in(tensors, names[i], numbers[i]);
  }
}

}  // namespace

KvPageTable page_table_of(const AttentionProblem& problem, const GivenPages& pages) {
  const auto& [address, row, pool] = pages;
  KvPageTable table{.page_size = problem.page_size, .row = row, .pool = pool, .entries = {}};
  const int* const entries = reinterpret_cast<const int*>(address);
  table.entries.assign(entries, entries + problem.batch * row);
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    for (std::int64_t key = 0; key < problem.keys_of(batch); key += problem.page_size) {
      const std::int64_t page = table.page_of(batch, key);
      if (page >= 0 && page < pool) continue;
      throw BadInput(fmt::format("page_table[{}, {}]", batch, key / problem.page_size), std::to_string(page),
                     fmt::format("must be one of the {} pages, 0 ... {}", pool, pool - 1));
    }
  }
  return table;
}

ProgramOptions options_of(const Kernel& kernel, const AttentionProblem& problem, const KernelUse& use) {
  constexpr int kMostRows = 4096;
  ProgramOptions options = kernel.default_options(problem);
  if (use.tile) {
    const auto [block_m, block_n] = *use.tile;
    if (block_m < 1 || block_n < 1 || block_m > kMostRows || block_n > kMostRows) {
      throw BadInput("tile", fmt::format("({}, {})", block_m, block_n),
                     fmt::format("must be (block_m, block_n), both in 1 ... {}", kMostRows));
    }
    options.set_tile({block_m, block_n});
  }
  if (use.backward) options.backward = backward_order_of(kernel, *use.backward);
  if (use.order) options.order = parse_tile_order(*use.order);
  if (use.scan) options.scan = parse_scan(*use.scan);
  if (!use.diagonal_slices) return options;
  options.diagonal_slices = *use.diagonal_slices;
  if (options.diagonal_slices < 1 || options.diagonal_slices > kMaxDiagonalSlices) {
    throw BadInput("diagonal_slices", std::to_string(options.diagonal_slices),
                   fmt::format("must lie in 1 ... {}", kMaxDiagonalSlices));
  }
  return options;
}

double attention_forward(const AttentionProblem& problem, const KernelUse& use, const HostArray& q,
                         const HostArray& k, const HostArray& v, const HostArray& out, const HostArray& lse,
                         const GivenDescales& descales, const GivenNumbers& numbers,
                         const GivenPages& pages) {
  ProgramOptions options;
  const Kernel& kernel = ready_kernel(problem, use, Direction::forward, options,
                                      {{TensorName::q, &q},
                                       {TensorName::k, &k},
                                       {TensorName::v, &v},
                                       {TensorName::out, &out},
                                       {TensorName::lse, &lse}});
  TensorSet tensors(problem);
  if (problem.page_size > 0) {
    tensors.kv_pages() = page_table_of(problem, pages);
    take_input(kernel, tensors, TensorName::q, q);
    take_pool(kernel, tensors, TensorName::k, k);
    take_pool(kernel, tensors, TensorName::v, v);
  } else {
    take_inputs(kernel, tensors, q, k, v);
  }
  take_descales(tensors, descales);
  take_numbers(tensors, numbers);
  view_output(kernel, tensors, TensorName::out, out);
  view_output(kernel, tensors, TensorName::lse, lse);
  const double seconds = run_kernel(kernel, options, Direction::forward, tensors);
  copy_out(tensors, TensorName::out, out);
  copy_out(tensors, TensorName::lse, lse);
  return seconds;
}

double attention_backward(const AttentionProblem& problem, const KernelUse& use, const HostArray& dout,
                          const HostArray& q, const HostArray& k, const HostArray& v, const HostArray& out,
                          const HostArray& lse, const HostArray& dq, const HostArray& dk, const HostArray& dv,
                          const GivenNumbers& numbers, const HostArray& dsink) {
  ProgramOptions options;
  const Kernel& kernel = ready_kernel(problem, use, Direction::backward, options,
                                      {{TensorName::q, &q},
                                       {TensorName::k, &k},
                                       {TensorName::v, &v},
                                       {TensorName::out, &out},
                                       {TensorName::lse, &lse},
                                       {TensorName::dout, &dout},
                                       {TensorName::dq, &dq},
                                       {TensorName::dk, &dk},
                                       {TensorName::dv, &dv}});
  TensorSet tensors(problem);
  take_inputs(kernel, tensors, q, k, v);
  take_numbers(tensors, numbers);
  if (kernel.algorithm == Algorithm::flash2) {
    take_input(kernel, tensors, TensorName::out, out);
    take_input(kernel, tensors, TensorName::lse, lse);
  } else {
    kernel.run(options, Direction::forward, tensors, nullptr);
  }
  take_input(kernel, tensors, TensorName::dout, dout);
  view_output(kernel, tensors, TensorName::dq, dq);
  view_output(kernel, tensors, TensorName::dk, dk);
  view_output(kernel, tensors, TensorName::dv, dv);
  const double seconds = run_kernel(kernel, options, Direction::backward, tensors);
  copy_out(tensors, TensorName::dq, dq);
  copy_out(tensors, TensorName::dk, dk);
  copy_out(tensors, TensorName::dv, dv);
  if (problem.score_mods.learned_sink) copy_out(tensors, TensorName::dsink, dsink);
  return seconds;
}

void exact(const AttentionProblem& problem, const HostArray& q, const HostArray& k, const HostArray& v,
           const HostArray& dout, const HostArray& out, const HostArray& lse, const HostArray& dq,
           const HostArray& dk, const HostArray& dv, const GivenDescales& descales,
           const GivenNumbers& numbers, const HostArray& dsink) {
  TensorSet tensors(problem);
  copy_inputs(tensors, q, k, v);
  take_descales(tensors, descales);
  take_numbers(tensors, numbers);
  if (given(dout)) copy_in(tensors, TensorName::dout, dout);
  const ExactAttention results =
      exact_attention(tensors, given(dout) ? Direction::backward : Direction::forward);
  copy_out(tensors, results, TensorName::out, out);
  copy_out(tensors, results, TensorName::lse, lse);
  if (!given(dout)) return;
  copy_out(tensors, results, TensorName::dq, dq);
  copy_out(tensors, results, TensorName::dk, dk);
  copy_out(tensors, results, TensorName::dv, dv);
  if (problem.score_mods.learned_sink) copy_out(tensors, results, TensorName::dsink, dsink);
}

}  // namespace tilescope::python
