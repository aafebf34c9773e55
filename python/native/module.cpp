// SPDX-License-Identifier: Apache-2.0
// The module tilescope._native: what the package's Python calls, and how its errors become exceptions.
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cctype>
#include <new>

#include "analysis/records/record_parts.hpp"
#include "analysis/studies/model_shapes.hpp"
#include "gpu/launch/device_error.hpp"
#include "profiler/counters/cupti_error.hpp"
#include "python/native/arrays.hpp"
#include "python/native/bindings.hpp"
#include "python/native/watched.hpp"

namespace tilescope::python {
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
  module.def("attention_forward", without_gil(&attention_forward), "problem"_a, "use"_a, "q"_a, "k"_a, "v"_a,
             "out"_a, "lse"_a, "descales"_a = GivenDescales{}, "numbers"_a = GivenNumbers{},
             "pages"_a = GivenPages{});
  module.def("attention_backward", without_gil(&attention_backward), "problem"_a, "use"_a, "dout"_a, "q"_a,
             "k"_a, "v"_a, "out"_a, "lse"_a, "dq"_a, "dk"_a, "dv"_a, "numbers"_a = GivenNumbers{},
             "dsink"_a = HostArray{});
  module.def("exact", without_gil(&exact), "problem"_a, "q"_a, "k"_a, "v"_a, "dout"_a, "out"_a, "lse"_a,
             "dq"_a, "dk"_a, "dv"_a, "descales"_a = GivenDescales{}, "numbers"_a = GivenNumbers{},
             "dsink"_a = HostArray{});
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
  bind_catalogues(module);
  bind_counting(module);
  bind_emulation(module);
}
