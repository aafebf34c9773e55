// SPDX-License-Identifier: Apache-2.0
// GPU kernels on memory of somebody else's: no allocation, no copy, no waiting, on a stream that is given.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <utility>

#include "cpu_ref/numeric/descales.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"
#include "cpu_ref/schedule/visit_tables.hpp"
#include "gpu/launch/pass_arguments.hpp"
#include "gpu/launch/row_stride.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "python/native/arrays.hpp"
#include "python/native/bindings.hpp"
#ifdef TILESCOPE_HAS_CUDA
#include "gpu/launch/device.hpp"
#endif

namespace tilescope::python {
namespace {

#ifdef TILESCOPE_HAS_CUDA
/// While it lives, this thread may do what a graph that another one captures has no part in.
class RelaxedCapture {
 public:
  RelaxedCapture() {
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "leaving others' graphs alone");
  }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the one before
};

/// The counter of a stream, whose launches follow each other and leave it 0. Kept as long as the process: the
/// driver may be gone before what a module holds is destroyed.
WorkCounter* work_counter(cudaStream_t stream) {
  static std::mutex mutex;
  static auto& counters = *new std::map<std::pair<int, cudaStream_t>, DeviceBuffer>;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "asking for the current device");
  const std::lock_guard<std::mutex> lock(mutex);
  DeviceBuffer& counter = counters[{device, stream}];
  if (!counter.data()) {
    const RelaxedCapture no_part_in_graphs;
    DeviceBuffer made("work counter", sizeof(WorkCounter));
    made.zero(stream);
    counter = std::move(made);
  }
  return static_cast<WorkCounter*>(counter.data());
}
#else
WorkCounter* work_counter(CUstream_st*) { throw MachineLacks(*device_lack()); }
#endif

TensorName tensor_called(const std::string& text) {
  for (int i = 0; i < kNumTensors; ++i) {
    if (to_string(static_cast<TensorName>(i)) == text) return static_cast<TensorName>(i);
  }
  throw BadInput("given", text, "must be names of tensors");
}

/// Those of the CPU, or of a device: what stands before the ladder for the problem, then the ladder from the
/// top down, then what reads pages where there are some; the ladder's top where none runs there.
std::vector<const Kernel*> fastest_first(const AttentionProblem& problem, int compute_capability) {
  std::vector<const Kernel*> kernels;
  const auto stands_before = [&](const Kernel* kernel) {
    return kernel->first_choice && kernel->first_choice(problem);
  };
  if (compute_capability == 0) {
    for (const Kernel& kernel : cpu_kernels()) kernels.push_back(&kernel);
  } else {
    for (const Kernel& row : gpu_kernels()) {
      if (!row.chips.has(compute_capability)) continue;
      const bool for_pages = problem.page_size > 0 && row.can.forward.has(Feature::paged_keys);
      if (row.rung > 0 || stands_before(&row) || for_pages) kernels.push_back(&row);
    }
    if (kernels.empty()) kernels.push_back(&gpu_ladder().back().row);
  }
  std::ranges::sort(kernels, [&](const Kernel* a, const Kernel* b) {
    return std::pair(stands_before(a), a->rung) > std::pair(stands_before(b), b->rung);
  });
  return kernels;
}

/// Whether a tensor has a number of each query head: its address is among the modifiers.
bool is_of_heads(TensorName name) { return static_cast<int>(name) >= kNumRowTensors; }

/// Where the arguments of a pass have the numbers of heads that a tensor holds.
void put_numbers(DeviceScoreMods& mods, TensorName name, std::uintptr_t address) {
  auto* const numbers = reinterpret_cast<float*>(address);
  if (name == TensorName::alibi_slopes) mods.alibi_slopes = numbers;
  if (name == TensorName::sink) mods.sinks = numbers;
  if (name == TensorName::dsink) mods.dsinks = numbers;
}

template <typename Element>
std::string bytes_of(const std::vector<Element>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(Element)};
}

bool computes(const Kernel& kernel, const AttentionProblem& problem, const KernelUse& use, bool backward) {
  try {
    const Direction direction = backward ? Direction::backward : Direction::forward;
    const ProgramOptions options = options_of(kernel, problem, use);
    return !kernel.refusal(problem, direction, options) && !build_lack(kernel, problem, direction, options);
  } catch (const BadInput&) {  // of a choice that it does not know
    return false;
  }
}

/// The use with its choices made: without a kernel the fastest that computes a direction of the problem, on a
/// device of that compute capability (90: sm_90) or, if it is 0, on the CPU; where none does the fastest,
/// whose refusal then says why. The order "deterministic" becomes one of the kernel's that sums alike each
/// time.
KernelUse choose_kernel(const AttentionProblem& problem, KernelUse use, int compute_capability,
                        bool backward) {
  const auto used = [&](const Kernel& kernel) {
    KernelUse chosen = use;
    chosen.kernel = kernel.name;
    if (use.backward == "deterministic") {
      const std::vector<BackwardOrder>& orders = kernel.backward_orders;
      const bool splits = std::ranges::find(orders, BackwardOrder::split) != orders.end();
      chosen.backward = to_string(splits || orders.empty() ? BackwardOrder::split : BackwardOrder::ordered);
    }
    return chosen;
  };
  if (!use.kernel.empty()) return used(find_kernel(use.kernel));
  const std::vector<const Kernel*> kernels = fastest_first(problem, compute_capability);
  for (const Kernel* kernel : kernels) {
    if (computes(*kernel, problem, used(*kernel), backward)) return used(*kernel);
  }
  return used(*kernels.front());
}

/// A tensor that the passes of a direction need beside inputs and outputs: (B, H, N, D), contiguous, and its
/// element type.
using Workspace = std::tuple<std::array<std::int64_t, 4>, std::string>;
/// A tensor of the caller's: its name, and its strides [elements] of batch, head and row; columns are
/// contiguous.
using GivenTensor = std::tuple<std::string, std::array<std::int64_t, 3>>;

/// The passes of one direction on tensors that lie in one way, made once and launched many times: what is
/// left for a launch is to put in addresses.
class DeviceLaunch {
 public:
  /// @param page_table_row  entries of a batch entry, whole sectors, where the problem has pages: k and v are
  /// pools then
  /// @throws BadInput where the kernel refuses the problem, a tensor is missing or rows lie more than
  /// kMaxRowStride apart, MachineLacks where this machine cannot run it
  DeviceLaunch(const AttentionProblem& problem, const KernelUse& use, bool backward,
               const std::vector<GivenTensor>& given, std::int64_t page_table_row = 0);

  const std::vector<Workspace>& workspaces() const { return workspaces_; }
  /// What passes that find their tiles in tables (VisitTables) read, three tables a pass: bytes that the
  /// caller puts into the device's memory. Long ones: they are held until they are taken.
  std::vector<std::string> take_tables() { return std::exchange(tables_, {}); }
  /// Enqueues the passes on `stream` of the current context.
  /// @param addresses  of the given tensors, then of the workspaces, in their orders; then, of ints, the page
  /// table of a problem with pages, whose entries are pages of the pools, its key lengths if it has some, and
  /// of floats those descales of q, k and v that it is given; last the tables of take_tables()
  /// @param counter  of two ints that are 0, or 0: those of the stream, which no graph may capture
  /// @param seed  of dropout
  /// @throws DeviceError where a launch fails
  void enqueue(std::uintptr_t stream, const std::vector<std::uintptr_t>& addresses, std::uintptr_t counter,
               std::uint64_t seed) const;

 private:
  const GpuKernel* kernel_;
  double dropout_;
  std::vector<TileProgram> programs_;
  std::vector<KernelArguments> arguments_;  // of each program, but for addresses
  std::vector<TensorName> names_;           // whose addresses enqueue() takes
  std::vector<Workspace> workspaces_;
  std::vector<std::string> tables_;
  std::size_t num_tables_ = 0;
  bool has_pages_, has_lengths_;
  std::vector<TensorName> descaled_;  // whose descales are given
  int heads_of_descale_ = 1;          // query heads that share a number
};

DeviceLaunch::DeviceLaunch(const AttentionProblem& problem, const KernelUse& use, bool backward,
                           const std::vector<GivenTensor>& given, std::int64_t page_table_row)
    : kernel_(&find_gpu_kernel(use.kernel)),
      dropout_(problem.dropout),
      has_pages_(problem.page_size > 0),
      has_lengths_(!problem.key_lengths.empty()) {
  const Direction direction = backward ? Direction::backward : Direction::forward;
  const Kernel& row = find_kernel(use.kernel);
  for (const TensorName name : {TensorName::q, TensorName::k, TensorName::v}) {
    if (descale_of(problem, name) != Descale{}) descaled_.push_back(name);
  }
  heads_of_descale_ = static_cast<int>(problem.group_size());
  const ProgramOptions options = options_of(row, problem, use);
  require_supported(row, problem, direction, options);
  for (const auto& [text, strides] : given) require_row_stride(text, strides[2]);
  require_runnable(row);
  if (const auto lack = build_lack(row, problem, direction, options)) {
    throw MachineLacks(std::string(row.name) + " " + *lack);
  }
  programs_ = row.programs(direction, problem, options);
  std::set<TensorName> missing = tensors_of(programs_);
  std::array<DeviceTensor, kNumRowTensors> placed{};
  for (const auto& [text, strides] : given) {
    const TensorName name = tensor_called(text);
    names_.push_back(name);
    missing.erase(name);
    if (is_of_heads(name)) continue;
    placed[static_cast<std::size_t>(name)] = {nullptr, strides[0], strides[1], strides[2]};
  }
  for (const TensorName name : missing) {
    if (is_of_heads(name)) throw BadInput("given", std::string(to_string(name)), "must be among the tensors");
    const TensorExtent extent = extent_in(programs_, name);
    names_.push_back(name);
    workspaces_.push_back({{extent.splits * extent.batch, extent.heads, extent.rows, extent.cols},
                           std::string(to_string(extent.dtype))});
    placed[static_cast<std::size_t>(name)] = {nullptr, extent.heads * extent.rows * extent.cols,
                                              extent.rows * extent.cols, extent.cols};
  }
  for (const TileProgram& program : programs_) {
    arguments_.push_back(pass_arguments(program));
    arguments_.back().tensors = placed;
    if (program.bit_reads > 0) {
      const VisitTables visits = visit_tables(program);
      tables_.insert(tables_.end(), {bytes_of(visits.blocks), bytes_of(visits.tiles), bytes_of(visits.bits)});
      num_tables_ = tables_.size();
      if (has_lengths_) arguments_.back().visits.blocks_of_entry = program.num_blocks();
    }
    if (!has_pages_) continue;
    arguments_.back().kv_pages = {nullptr, static_cast<int>(page_table_row),
                                  std::countr_zero(static_cast<std::uint64_t>(problem.page_size))};
  }
}

void DeviceLaunch::enqueue(std::uintptr_t stream, const std::vector<std::uintptr_t>& addresses,
                           std::uintptr_t counter, std::uint64_t seed) const {
  const std::size_t tables = (has_pages_ ? 1u : 0u) + (has_lengths_ ? 1u : 0u);
  const std::size_t others = names_.size() + tables + descaled_.size(), wanted = others + num_tables_;
  if (addresses.size() != wanted) {
    throw BadInput("addresses", std::to_string(addresses.size()),
                   "must be " + std::to_string(wanted) + ", one a tensor and table");
  }
  auto* const of_stream = reinterpret_cast<CUstream_st*>(stream);
  std::size_t visited = others;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    KernelArguments arguments = arguments_[i];
    for (std::size_t tensor = 0; tensor < names_.size(); ++tensor) {
      if (is_of_heads(names_[tensor])) {
        put_numbers(arguments.score_mods, names_[tensor], addresses[tensor]);
        continue;
      }
      arguments.tensors[static_cast<std::size_t>(names_[tensor])].data =
          reinterpret_cast<void*>(addresses[tensor]);
    }
    const auto ints = [&](std::size_t table) {
      return reinterpret_cast<const int*>(addresses[names_.size() + table]);
    };
    if (programs_[i].bit_reads > 0) {
      arguments.visits.blocks = reinterpret_cast<const VisitedTiles*>(addresses[visited]);
      arguments.visits.tiles = reinterpret_cast<const VisitedTile*>(addresses[visited + 1]);
      arguments.visits.bits = reinterpret_cast<const std::uint32_t*>(addresses[visited + 2]);
      visited += 3;
    }
    if (has_pages_) arguments.kv_pages.entries = ints(0);
    if (has_lengths_) arguments.key_lengths = ints(has_pages_ ? 1 : 0);
    for (std::size_t j = 0; j < descaled_.size(); ++j) {
      DeviceDescales& descales = descaled_[j] == TensorName::q   ? arguments.descale_q
                                 : descaled_[j] == TensorName::k ? arguments.descale_k
                                                                 : arguments.descale_v;
      const auto* const numbers = reinterpret_cast<const float*>(addresses[names_.size() + tables + j]);
      descales = {numbers, heads_of_descale_, 1};
    }
    if (programs_[i].work_counter) {
      arguments.counter = counter ? reinterpret_cast<WorkCounter*>(counter) : work_counter(of_stream);
    }
    if (dropout_ > 0) arguments.dropout = DropoutMask(seed, dropout_);
    kernel_->launch(programs_[i], arguments, of_stream);
  }
}

}  // namespace

void bind_device(nb::module_& module) {
  module.def(
      "require_pages",
      [](const AttentionProblem& problem, const GivenPages& pages) { page_table_of(problem, pages); },
      "problem"_a, "pages"_a);
  module.def("most_row_stride", [] { return kMaxRowStride; });
  module.def(
      "choose_kernel",
      [](const AttentionProblem& problem, std::string kernel, std::optional<std::array<int, 2>> tile,
         std::string order, int compute_capability, bool backward) {
        KernelUse use{std::move(kernel), tile, std::nullopt};
        if (!order.empty()) use.backward = std::move(order);
        return choose_kernel(problem, std::move(use), compute_capability, backward);
      },
      "problem"_a, "kernel"_a, "tile"_a.none(), "order"_a, "compute_capability"_a, "backward"_a);
  module.def("alibi_slope", &alibi_slope, "head"_a, "heads"_a);
  module.def("descale_range", [] { return std::pair(kLeastDescale, kMostDescale); });
  nb::class_<DeviceLaunch>(module, "DeviceLaunch")
      .def(nb::init<const AttentionProblem&, const KernelUse&, bool, const std::vector<GivenTensor>&,
                    std::int64_t>(),
           "problem"_a, "use"_a, "backward"_a, "given"_a, "page_table_row"_a = 0)
      .def("workspaces", &DeviceLaunch::workspaces)
      .def("take_tables",
           [](DeviceLaunch& launch) {
             nb::list tables;
             for (const std::string& table : launch.take_tables()) {
               tables.append(nb::bytes(table.data(), table.size()));
             }
             return tables;
           })
      .def("enqueue", &DeviceLaunch::enqueue, "stream"_a, "addresses"_a, "counter"_a, "seed"_a,
           nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace tilescope::python
