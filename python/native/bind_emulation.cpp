// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/native/emulation.hpp"
#include "python/native/watched.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace tilescope::python {

void bind_emulation(nb::module_& module) {
  using Bytes = std::vector<std::tuple<std::string, std::uintptr_t, std::uint64_t, nb::bytes>>;
  module.def(
      "emulate",
      [](std::vector<std::string> argv, std::string ptx, std::string kernel, std::array<unsigned, 3> grid,
         std::array<unsigned, 3> block, std::array<unsigned, 3> cluster, const Bytes& arguments,
         const Bytes& reachable, const std::vector<std::uintptr_t>& uninitialised, std::uint32_t shared,
         std::optional<std::uint32_t> max_dynamic_shared, bool non_portable_cluster,
         std::optional<int> registers, std::string sass, bool races, std::uint64_t seed,
         double most_seconds) {
        EmulationRequest request{std::move(argv),
                                 std::move(ptx),
                                 std::move(kernel),
                                 grid,
                                 block,
                                 cluster,
                                 {},
                                 {},
                                 uninitialised,
                                 shared,
                                 max_dynamic_shared,
                                 non_portable_cluster,
                                 registers,
                                 std::move(sass),
                                 races,
                                 seed,
                                 most_seconds};
        for (const auto& [from, to] :
             {std::pair(&arguments, &request.arguments), {&reachable, &request.reachable}}) {
          for (const auto& [name, address, bytes, value] : *from)
            to->emplace_back(name, address, bytes, std::string(value.c_str(), value.size()));
        }
        EmulationResult result;
        run_without_gil([&] { result = emulate(request); });
        return std::tuple(result.record, result.instructions,
                          nb::bytes(result.printed.data(), result.printed.size()));
      },
      "argv"_a, "ptx"_a, "kernel"_a, "grid"_a, "block"_a, "cluster"_a, "arguments"_a, "reachable"_a,
      "uninitialised"_a, "shared"_a, "max_dynamic_shared"_a.none(), "non_portable_cluster"_a,
      "registers"_a.none(), "sass"_a, "races"_a, "seed"_a, "most_seconds"_a);
  module.def("kernel_parameters", &kernel_parameters, "ptx"_a, "kernel"_a);
  module.def(
      "address_of",
      [](const nb::bytearray& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); },
      "memory"_a);
  module.def(
      "tensor_map",
      [](std::uintptr_t address, int type, const std::vector<std::uint64_t>& extents,
         const std::vector<std::uint64_t>& strides, const std::vector<std::uint32_t>& box, int swizzle,
         bool fill_nan) {
        const std::string map = tensor_map(address, type, extents, strides, box, swizzle, fill_nan);
        return nb::bytes(map.data(), map.size());
      },
      "address"_a, "type"_a, "extents"_a, "strides"_a, "box"_a, "swizzle"_a, "fill_nan"_a);
}

}  // namespace tilescope::python
