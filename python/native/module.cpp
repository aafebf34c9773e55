// SPDX-License-Identifier: Apache-2.0
// The module tilescope._native: what the package's Python calls, and how its errors become exceptions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cctype>
#include <new>

#include "analysis/records/record_parts.hpp"
#include "analysis/studies/model_shapes.hpp"
#include "gpu/launch/device_error.hpp"
#include "gpu/launch/row_stride.hpp"
#include "profiler/counters/cupti_error.hpp"
#include "python/native/arrays.hpp"
#include "python/native/counting.hpp"
#include "python/native/device.hpp"
#include "python/native/model.hpp"
#include "python/native/watched.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace tilescope::python {

void bind_emulation(nb::module_& module);  // what runs kernels on the emulated device: bind_emulation.cpp

namespace {

/// Why there are no counters, in a word, by the CUptiResult.
std::string reason_of(const CountersUnavailable& error) {
  constexpr std::pair<int, const char*> kReasons[] = {{23, "busy"},       {26, "busy"},       {33, "virtual"},
                                                      {35, "permission"}, {39, "subscriber"}, {40, "virtual"},
                                                      {43, "virtual"}};
  for (const auto& [code, word] : kReasons) {
    if (code == error.code()) return word;
  }
  return "no_device";
}

/// Raises tilescope.errors.NAME(arguments...).
template <typename... Arguments>
void raise(const char* name, const Arguments&... arguments) {
  const nb::object type = nb::module_::import_("tilescope.errors").attr(name);
  PyErr_SetObject(type.ptr(), type(arguments...).ptr());
}

/// Told of Python's arguments and not of the command line's: kernel_filter for --kernel-filter, record for
/// RECORD. A command in backquotes stays as it is typed.
std::string in_pythons_words(const std::string& text) {
  std::string told;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (text[at] == '`' && text.find('`', end) != std::string::npos && text[end] != '-') {
      end = text.find('`', end) + 1;
      told.append(text, at, end - at);
    } else if (text.compare(at, 2, "--") == 0 && std::islower(text[at + 2])) {
      end = std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at), text.size());
      std::string name = text.substr(at + 2, end - at - 2);
      std::replace(name.begin(), name.end(), '-', '_');
      told += name;
    } else {
      told += text[at];
    }
    at = end;
  }
  return told.starts_with("RECORD") ? "record" + told.substr(6) : told;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const nb::python_error&) {
    throw;
  } catch (const nb::builtin_exception&) {
    throw;
  } catch (const UnknownName& error) {
    raise("UnknownName", in_pythons_words(error.what()), in_pythons_words(error.field()), error.value(),
          in_pythons_words(error.allowed()), error.nearest());
  } catch (const BadInput& error) {
    raise("BadInput", in_pythons_words(error.what()), in_pythons_words(error.field()), error.value(),
          in_pythons_words(error.allowed()));
  } catch (const CountersUnavailable& error) {
    raise("CountersUnavailable", error.what(), reason_of(error));
  } catch (const MachineLacks& error) {
    raise("MachineLacks", error.what());
  } catch (const DeviceError& error) {
    raise("DeviceError", error.what());
  } catch (const std::bad_alloc&) {
    raise("OutOfMemory", "out of memory: choose a smaller problem or a machine with more memory");
  } catch (const std::exception& error) {
    raise("InternalError", std::string("this should not happen, please report it: ") + error.what());
  }
}

/// @throws BadInput from validate()
AttentionProblem make_problem(std::int64_t batch, std::int64_t heads, std::int64_t heads_kv,
                              std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t head_dim,
                              const std::string& dtype, bool causal, std::array<std::int64_t, 2> window,
                              std::optional<double> scale, double dropout, std::uint64_t seed,
                              std::vector<std::int64_t> key_lengths, const std::string& descale_q,
                              const std::string& descale_k, const std::string& descale_v,
                              std::optional<std::array<int, 2>> descale_block, const std::string& mask,
                              const std::map<std::string, double>& score_mods, std::int64_t head_dim_v,
                              std::int64_t page_size, const std::string& kv_dtype, bool shared_kv) {
  AttentionProblem problem{
      batch,  heads,     heads_kv,  seqlen_q, seqlen_k, head_dim, parse_element_type(dtype),
      causal, window[0], window[1], scale,    dropout,  seed,     std::move(key_lengths)};
  problem.descales = {parse_descale("descale_q", descale_q), parse_descale("descale_k", descale_k),
                      parse_descale("descale_v", descale_v)};
  if (!mask.empty()) problem.mask = parse_mask("mask", mask);
  problem.head_dim_v = head_dim_v == head_dim ? 0 : head_dim_v;
  problem.page_size = page_size;
  problem.shared_kv = shared_kv;
  if (!kv_dtype.empty() && kv_dtype != dtype) problem.kv_dtype = parse_element_type(kv_dtype);
  for (const auto& [name, number] : score_mods) set_score_mod(problem.score_mods, name, number);
  if (descale_block) problem.descales.block = {(*descale_block)[0], (*descale_block)[1]};
  validate(problem);
  return problem;
}

/// Element types of the outputs, which are not those of the inputs everywhere.
std::string output_type(const AttentionProblem& problem) {
  return std::string(to_string(tensor_extent(problem, TensorName::out).dtype));
}

void bind_problem(nb::module_& module) {
  nb::class_<AttentionProblem>(module, "Problem")
      .def(nb::new_(&make_problem), "batch"_a, "heads"_a, "heads_kv"_a, "seqlen_q"_a, "seqlen_k"_a,
           "head_dim"_a, "dtype"_a, "causal"_a, "window"_a, "scale"_a.none(), "dropout"_a, "seed"_a,
           "key_lengths"_a = std::vector<std::int64_t>(), "descale_q"_a = "1", "descale_k"_a = "1",
           "descale_v"_a = "1", "descale_block"_a.none() = nb::none(), "mask"_a = "",
           "score_mods"_a = std::map<std::string, double>(), "head_dim_v"_a = 0, "page_size"_a = 0,
           "kv_dtype"_a = "", "shared_kv"_a = false)
      .def(
          "with_seed",
          [](AttentionProblem problem, std::uint64_t seed) {
            problem.seed = seed;
            return problem;
          },
          "seed"_a)
      .def("describe", [](const AttentionProblem& problem) { return describe(problem); })
      .def("output_type", &output_type);
  module.def(
      "preset", [](const std::string& name) { return problem_json(find_preset(name).problem).dump(); },
      "name"_a);
  module.def(
      "model_layer",
      [](const std::string& name, std::int64_t tensor_parallel, std::int64_t batch, std::int64_t seqlen,
         bool decode) {
        const AttentionProblem problem =
            layer_problem(find_model(name), tensor_parallel, batch, seqlen, decode);
        validate(problem);
        return problem_json(problem).dump();
      },
      "name"_a, "tp"_a, "batch"_a, "seqlen"_a, "decode"_a);
}

void bind_arrays(nb::module_& module) {
  nb::class_<KernelUse>(module, "KernelUse")
      .def(
          "__init__",
          [](KernelUse* use, std::string kernel, std::optional<std::array<int, 2>> tile,
             std::optional<std::string> backward, std::optional<std::string> order,
             std::optional<std::string> scan, std::optional<int> diagonal_slices) {
            new (use) KernelUse{std::move(kernel), tile,           std::move(backward), std::move(order),
                                std::move(scan),   diagonal_slices};
          },
          "kernel"_a, "tile"_a.none() = nb::none(), "backward"_a.none() = nb::none(),
          "order"_a.none() = nb::none(), "scan"_a.none() = nb::none(),
          "diagonal_slices"_a.none() = nb::none())
      .def_ro("kernel", &KernelUse::kernel)
      .def_ro("backward", &KernelUse::backward);
  module.def(
      "attention_forward",
      [](const AttentionProblem& problem, const KernelUse& use, const HostArray& q, const HostArray& k,
         const HostArray& v, const HostArray& out, const HostArray& lse, const GivenDescales& descales,
         const GivenNumbers& numbers, const GivenPages& pages) {
        double seconds = 0;
        run_without_gil(
            [&] { seconds = attention_forward(problem, use, q, k, v, out, lse, descales, numbers, pages); });
        return seconds;
      },
      "problem"_a, "use"_a, "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a, "descales"_a = GivenDescales{},
      "numbers"_a = GivenNumbers{}, "pages"_a = GivenPages{});
  module.def(
      "attention_backward",
      [](const AttentionProblem& problem, const KernelUse& use, const HostArray& dout, const HostArray& q,
         const HostArray& k, const HostArray& v, const HostArray& out, const HostArray& lse,
         const HostArray& dq, const HostArray& dk, const HostArray& dv, const GivenNumbers& numbers,
         const HostArray& dsink) {
        double seconds = 0;
        run_without_gil([&] {
          seconds = attention_backward(problem, use, dout, q, k, v, out, lse, dq, dk, dv, numbers, dsink);
        });
        return seconds;
      },
      "problem"_a, "use"_a, "dout"_a, "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a, "dq"_a, "dk"_a, "dv"_a,
      "numbers"_a = GivenNumbers{}, "dsink"_a = HostArray{});
  module.def(
      "exact",
      [](const AttentionProblem& problem, const HostArray& q, const HostArray& k, const HostArray& v,
         const HostArray& dout, const HostArray& out, const HostArray& lse, const HostArray& dq,
         const HostArray& dk, const HostArray& dv, const GivenDescales& descales, const GivenNumbers& numbers,
         const HostArray& dsink) {
        run_without_gil(
            [&] { exact(problem, q, k, v, dout, out, lse, dq, dk, dv, descales, numbers, dsink); });
      },
      "problem"_a, "q"_a, "k"_a, "v"_a, "dout"_a, "out"_a, "lse"_a, "dq"_a, "dk"_a, "dv"_a,
      "descales"_a = GivenDescales{}, "numbers"_a = GivenNumbers{}, "dsink"_a = HostArray{});
}

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

void bind_model(nb::module_& module) {
  module.def(
      "simulate",
      [](std::vector<std::string> argv, const std::vector<AttentionProblem>& problems,
         const std::vector<KernelUse>& kernels, std::string machine, std::string passes, std::string pages,
         bool replay, bool l2_curve, bool predict, const nb::object& progress) {
        return simulate({std::move(argv), problems, kernels, std::move(machine), std::move(passes),
                         std::move(pages), replay, l2_curve, predict},
                        progress);
      },
      "argv"_a, "problems"_a, "kernels"_a, "machine"_a, "passes"_a, "pages"_a, "replay"_a, "l2_curve"_a,
      "predict"_a, "progress"_a.none());
  module.def(
      "advise",
      [](const std::vector<std::string>& argv, const AttentionProblem& problem, const KernelUse& use,
         const std::string& machine, const std::string& passes) {
        std::string record;
        run_without_gil([&] { record = advise(argv, problem, use, machine, passes); });
        return record;
      },
      "argv"_a, "problem"_a, "use"_a, "machine"_a, "passes"_a);
  module.def(
      "simulate_gpus",
      [](std::vector<std::string> argv, const AttentionProblem& problem, std::vector<int> gpus,
         std::vector<std::string> schedules, int ulysses, std::string machine, std::string passes,
         std::optional<double> link_rate, std::optional<double> flop_rate) {
        return simulate_gpus({std::move(argv), problem, std::move(gpus), std::move(schedules), ulysses,
                              std::move(machine), std::move(passes), link_rate, flop_rate});
      },
      "argv"_a, "problem"_a, "gpus"_a, "schedules"_a, "ulysses"_a, "machine"_a, "passes"_a,
      "link_rate"_a.none(), "flop_rate"_a.none());
  module.def("study", &study, "argv"_a, "name"_a, "machine"_a, "progress"_a.none());
  module.def("record_of_csv", &record_of_csv, "source"_a, "text"_a);
  module.def("explain", &explain, "argv"_a, "source"_a, "record"_a, "problem"_a, "passes"_a, "filter"_a,
             "skip"_a, "count"_a);
  module.def("diff", &diff, "base_source"_a, "base"_a, "new_source"_a, "new"_a, "budgets"_a, "allow_gone"_a);
  module.def(
      "report",
      [](const std::vector<std::pair<std::string, std::string>>& records) {
        std::vector<std::pair<std::string, std::string>> files;
        run_without_gil([&] { files = report(records); });
        return files;
      },
      "records"_a);
  module.def("checked", &checked, "source"_a, "record"_a);
  module.def("catalogue", &catalogue, "what"_a);
  module.def("counters_of", &counters_of, "chip"_a);
  module.def("info", &info);
}

void bind_counting(nb::module_& module) {
  nb::class_<BlockCount>(module, "BlockCount")
      .def(nb::init<const std::string&, int, const std::string&, const std::string&, const std::string&>(),
           "metrics"_a, "device"_a, "l2"_a, "by"_a, "filter"_a)
      .def("open", &BlockCount::open, nb::call_guard<nb::gil_scoped_release>())
      .def("close", &BlockCount::close, "name"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("record", &BlockCount::record, "argv"_a)
      .def("library", &BlockCount::library);
  module.def(
      "measure",
      [](std::vector<std::string> argv, std::string name, std::string metrics, std::string l2, int device,
         int launches, bool time, const std::function<void()>& work) {
        return measure(
            {std::move(argv), std::move(name), std::move(metrics), std::move(l2), device, launches, time},
            work);
      },
      "argv"_a, "name"_a, "metrics"_a, "l2"_a, "device"_a, "launches"_a, "time"_a, "work"_a);
  module.def("timeline", &timeline, "interval_s"_a, "work"_a);
}

}  // namespace
}  // namespace tilescope::python

NB_MODULE(_native, module) {
  using namespace tilescope::python;
  module.attr("__version__") = TILESCOPE_VERSION;
  nb::register_exception_translator(translate);
  nb::set_leak_warnings(false);  // tilescope.torch remembers ways of calling until the process ends
  notice_forks();
  bind_problem(module);
  bind_arrays(module);
  bind_device(module);
  bind_model(module);
  bind_counting(module);
  bind_emulation(module);
}
