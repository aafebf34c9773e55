// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/machine/machine_defaults.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "analysis/model/machine/machine.hpp"
#include "common/quantity.hpp"

namespace tilescope {
namespace {

/// Of a fact, or a number that stands alone; nothing where there is none.
std::optional<double> fact_in(const Json& machine, const char* field) {
  if (!machine.contains(field)) return std::nullopt;
  const Json& fact = machine.at(field);
  return number_in(fact.is_object() && fact.contains("value") ? fact.at("value") : fact);
}

/// Takes out fields that are null or without fields, and facts whose value is null.
void erase_empty(Json& object) {
  if (!object.is_object()) return;
  for (auto field = object.begin(); field != object.end();) {
    const bool empty = field->is_null() || (field->is_object() && field->empty()) ||
                       (field->is_object() && field->contains("value") && field->at("value").is_null());
    field = empty ? object.erase(field) : std::next(field);
  }
}

constexpr double kKiB = 1024;

/// All are computed from two numbers that a file must have.
struct Default {
  std::string_view field;
  double (*value)(double shared_bytes_per_sm, double l2_bytes);
  const char* source;
};

constexpr Default kDefaults[] = {
    {"shared_bytes_per_cta", [](double shared, double) { return shared - kKiB; },
     "all of an SM's but the 1 KiB that CUDA keeps of a CTA's from compute capability 8.0 on"},
    {"on_chip_bytes_per_sm",
     [](double shared, double) { return 256 * kKiB + std::ceil(shared / (32 * kKiB)) * 32 * kKiB; },
     "65536 registers of 4 bytes, and unified L1 and shared memory: the latter rounded up to 32 KiB, as on "
     "A100, "
     "H100 and RTX 50"},
    {"ctas_per_sm", [](double, double) { return 32.0; },
     "of compute capability 8.0, 9.0 and 10.0; others keep fewer"},
    {"l2_effective_bytes", [](double, double l2) { return std::floor(0.64 * l2); },
     "64 % of the L2, the share that FlashAttention-3's tile scheduler assumes of an H100 (32 of 50 MB)"},
    {"sm_clock_hz", [](double, double) { return 2.6e9; },
     "faster than the GPUs of 2025 boost, so that a time bound stays one"},
    {"exponentials_per_clock_per_sm", [](double, double) { return 16.0; },
     "CUDA C++ Programming Guide, 'Throughput of Native Arithmetic Instructions', 7.0 ... 10.0 and 12.0"},
};

}  // namespace

std::string_view meaning_of(std::string_view field) {
  constexpr std::pair<std::string_view, std::string_view> kMeanings[] = {
      {"sm_count", "SMs (compute units) of the whole GPU"},
      {"shared_bytes_per_sm", "shared memory that the CTAs of one SM have together, at most"},
      {"shared_bytes_per_cta", "shared memory that one CTA has at most; by default 1 KiB less than an SM's"},
      {"on_chip_bytes_per_sm",
       "registers, L1 and shared memory of one SM; by default 256 KiB of registers, and shared memory "
       "rounded up "
       "to 32 KiB"},
      {"ctas_per_sm", "CTAs that one SM keeps resident at most; by default 32"},
      {"l2_bytes", "capacity of the L2"},
      {"l2_effective_bytes", "what of it streamed data can use; by default 64 %"},
      {"dram_bytes", "memory of the device"},
      {"dram_bytes_per_second", "bandwidth of that memory"},
      {"l2_bytes_per_second", "bandwidth between all SMs and the L2; without it SM<->L2 bounds no time"},
      {"link_bytes_per_second", "to another GPU"},
      {"launch_seconds", "from the end of what a kernel waits for to its begin"},
      {"empty_launch_seconds", "what a kernel that does nothing takes by itself"},
      {"next_launch_seconds", "and each further one behind it"},
      {"early_launch_seconds", "the same where it may begin before the one before it has ended"},
      {"sm_clock_hz", "the SMs' clock at which the peaks hold; by default 2.6 GHz"},
      {"boost_clock_hz",
       "the clock of SMs whose tensor cores rest, for predicted times; by default sm_clock_hz"},
      {"tensor_clock_hz",
       "and of those whose tensor cores never rest, where power bounds it; by default the same"},
      {"tensor_flops_per_clock_per_sm", "of 16-bit types, dense; by default the peak at sm_clock_hz"},
      {"mma_sync_peak_share", "what of the peak mma.sync reaches; by default all, 1.0"},
      {"exponentials_per_clock_per_sm", "results of one SM's special function units; by default 16"},
      {"peak_flops_per_second", "dense matrix products, without sparsity, by element type; one is enough"},
      {"l2_ways", "lines of a set, where the L2 is in two partitions"},
      {"cta_progress", "how CTAs and the clocks of their SMs drift apart, by the unit that multiplies"}};
  const auto* const found =
      std::ranges::find_if(kMeanings, [field](const auto& one) { return one.first == field; });
  return found == std::end(kMeanings) ? "" : found->second;
}

std::optional<double> number_in(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  std::string text = value.get<std::string>();
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  if (const auto bytes = read_bytes(text)) return static_cast<double>(*bytes);
  const auto quantity = read_quantity(text);
  return quantity ? std::optional(quantity->value) : std::nullopt;
}

bool has_default(std::string_view field) {
  return field == "title" || field == "chip" ||
         std::ranges::any_of(kDefaults, [field](const Default& one) { return one.field == field; });
}

void fill_in_defaults(Json& machine) {
  if (machine.contains("peak_flops_per_second")) erase_empty(machine["peak_flops_per_second"]);
  erase_empty(machine);
  if (!machine.contains("title") && machine.contains("name")) machine["title"] = machine["name"];
  if (!machine.contains("chip")) machine["chip"] = "not named";
  // Where one of the two is missing or no number, the reader refuses it before it comes to what follows from
  // it.
  const double shared = fact_in(machine, "shared_bytes_per_sm").value_or(0),
               l2 = fact_in(machine, "l2_bytes").value_or(0);
  for (const auto& [field, value, source] : kDefaults) {
    if (machine.contains(field)) continue;
    machine[std::string(field)] = {{"value", static_cast<std::int64_t>(value(shared, l2))},
                                   {"kind", kDefaultKind},
                                   {"source", std::string("TileScope's default: ") + source}};
  }
}

}  // namespace tilescope
