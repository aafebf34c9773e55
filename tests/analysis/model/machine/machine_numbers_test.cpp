// SPDX-License-Identifier: Apache-2.0
// Numbers of machine files that stand without their sources, and what follows from those of the shipped ones.
#include <doctest/doctest.h>

#include "analysis/model/machine/machine.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope {

TEST_CASE("numbers may stand without their sources, and then are unverified") {
  const Json json = {{"name", "b200"},
                     {"sm_count", 148},
                     {"l2_bytes", "126MiB"},
                     {"shared_bytes_per_sm", 233472},
                     {"l2_effective_bytes", 1 << 26},
                     {"dram_bytes_per_second", "8TB/s"},
                     {"peak_flops_per_second", {{"fp16", 2.25e15}}}};
  const Machine machine = parse_machine("b200.json", json.dump());
  CHECK(machine.sm_count == Fact<std::int64_t>{148, "not said in the machine's file", "unverified"});
  CHECK(machine.l2_bytes.value == 126 << 20);
  CHECK(machine.l2_effective_bytes.value == 1 << 26);
  CHECK(machine.shared_bytes_per_cta.value == 227 << 10);  // by default
  CHECK(machine.dram_bytes_per_second.kind == "unverified");
  CHECK(machine.peak_flops_per_second.at("fp16").kind == "unverified");
  CHECK(parse_machine("again", to_json_text(machine)) == machine);
  const Json faster = {{"name", "mine"}, {"base", "h200"}, {"dram_bytes_per_second", 6e12}};
  CHECK(parse_machine("mine.json", faster.dump()).dram_bytes_per_second.value == 6e12);
  for (const std::string& name : machine_names()) {  // the shipped ones say where each number came from
    for (const MachineNumber& number : numbers_of(load_machine(name)))
      CHECK((number.source != machine.sm_count.source && number.value.find('"') == std::string::npos));
  }
}

TEST_CASE("an element type that a chip lacks has no peak") {
  CHECK_FALSE(load_machine("a100-40gb").peak_flops(ElementType::fp8e4m3).has_value());
}

TEST_CASE("residency follows shared memory, between one CTA and the hardware's limit") {
  const Machine h200 = load_machine("h200");
  CHECK(h200.resident_ctas_per_sm(0) == 32);
  CHECK(h200.resident_ctas_per_sm(113 * 1024) == 2);  // (113 + 1) * 2 = 228 KiB
  CHECK(h200.resident_ctas_per_sm(113 * 1024 + 1) == 1);
  CHECK(h200.fits(227 * 1024));
  CHECK_FALSE(h200.fits(227 * 1024 + 1));
  CHECK(h200.resident_ctas_per_sm(1 << 30) == 1);
}

}  // namespace tilescope
