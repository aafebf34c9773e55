// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/injected/nvtx_ranges.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <utility>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

using namespace tilescope;

TEST_CASE("without an expression every launch is inside, whatever ranges there are") {
  NvtxRanges ranges("");
  CHECK(ranges.inside());
  ranges.push(nullptr, "step");
  CHECK(ranges.inside());
  ranges.pop(nullptr);
  CHECK(ranges.inside());
}

TEST_CASE("nested ranges are inside until the outermost that matches ends") {
  NvtxRanges ranges("^step");
  CHECK(!ranges.inside());
  ranges.push(nullptr, "a step");
  CHECK(!ranges.inside());
  ranges.push(nullptr, "step 1");
  ranges.push(nullptr, "forward");
  ranges.push(nullptr, "step within");
  CHECK(ranges.inside());
  ranges.pop(nullptr);
  ranges.pop(nullptr);
  CHECK(ranges.inside());
  ranges.pop(nullptr);
  CHECK(!ranges.inside());
  ranges.pop(nullptr);
  ranges.pop(nullptr);  // one more end than beginnings
  ranges.push(nullptr, nullptr);
  CHECK(!ranges.inside());
  ranges.pop(nullptr);
}

TEST_CASE("domains nest by themselves, and another thread's range counts") {
  NvtxRanges ranges("step");
  int domain = 0;
  ranges.push(&domain, "step");
  ranges.pop(nullptr);
  CHECK(ranges.inside());
  bool inside_elsewhere = false;
  std::thread([&] {
    inside_elsewhere = ranges.inside();
    ranges.pop(&domain);  // nothing was pushed there
  }).join();
  CHECK(inside_elsewhere);
  CHECK(ranges.inside());
  ranges.pop(&domain);
  CHECK(!ranges.inside());
}

TEST_CASE("ranges that start and end anywhere are told by their numbers") {
  NvtxRanges ranges("step");
  const std::uint64_t first = ranges.next_id(), second = ranges.next_id();
  CHECK(first != second);
  ranges.start(first, "step");
  ranges.start(second, "other");
  ranges.end(second);
  CHECK(ranges.inside());
  ranges.end(first);
  ranges.end(first);
  CHECK(!ranges.inside());
}

#if __has_include(<nvtx3/nvToolsExt.h>)
namespace {

/// NVTX as it hands its functions to a tool, of which only those of the domains are looked at.
NvtxFunctionPointer domain_functions[NVTX_CBID_CORE2_SIZE];

int function_table(NvtxCallbackModule module, NvtxFunctionTable* table, unsigned* size) {
  if (module != NVTX_CB_MODULE_CORE2) return 0;
  static NvtxFunctionPointer* places[NVTX_CBID_CORE2_SIZE];
  for (unsigned i = 0; i < NVTX_CBID_CORE2_SIZE; ++i) places[i] = &domain_functions[i];
  *table = places;
  *size = NVTX_CBID_CORE2_SIZE;
  return 1;
}

const void* export_table(std::uint32_t) {
  static const NvtxExportTableCallbacks callbacks{sizeof callbacks, function_table};
  return &callbacks;
}

}  // namespace

TEST_CASE("a registered name counts like one that is spelled out") {
  static NvtxRanges ranges("^step 3$");
  REQUIRE(connect_nvtx(export_table, ranges));
  const auto register_name = reinterpret_cast<nvtxStringHandle_t (*)(nvtxDomainHandle_t, const char*)>(
      domain_functions[NVTX_CBID_CORE2_DomainRegisterStringA]);
  const auto push = reinterpret_cast<int (*)(nvtxDomainHandle_t, const nvtxEventAttributes_t*)>(
      domain_functions[NVTX_CBID_CORE2_DomainRangePushEx]);
  const auto pop =
      reinterpret_cast<int (*)(nvtxDomainHandle_t)>(domain_functions[NVTX_CBID_CORE2_DomainRangePop]);
  REQUIRE((register_name != nullptr));
  nvtxEventAttributes_t event{};
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  for (const auto& [name, matches] : {std::pair("step 3", true), {"step 30", false}, {"step 3", true}}) {
    event.message.registered = register_name(nullptr, name);
    push(nullptr, &event);
    CHECK(ranges.inside() == matches);
    pop(nullptr);
    CHECK(!ranges.inside());
  }
  const auto register_wide = reinterpret_cast<nvtxStringHandle_t (*)(nvtxDomainHandle_t, const wchar_t*)>(
      domain_functions[NVTX_CBID_CORE2_DomainRegisterStringW]);
  REQUIRE((register_wide != nullptr));
  event.message.registered = register_wide(nullptr, L"step 3");
  push(nullptr, &event);
  CHECK(ranges.inside());
  pop(nullptr);
  event.message.registered = reinterpret_cast<nvtxStringHandle_t>(&event);  // nobody's handle
  push(nullptr, &event);
  CHECK(!ranges.inside());
  pop(nullptr);
}

TEST_CASE("a name in wide characters matches as it is written in UTF-8") {
  static NvtxRanges ranges("^Schritt \xC3\xBC \xE2\x88\x87 \xF0\x9D\x84\x9E$");
  REQUIRE(connect_nvtx(export_table, ranges));
  const auto push = reinterpret_cast<int (*)(nvtxDomainHandle_t, const nvtxEventAttributes_t*)>(
      domain_functions[NVTX_CBID_CORE2_DomainRangePushEx]);
  const auto pop =
      reinterpret_cast<int (*)(nvtxDomainHandle_t)>(domain_functions[NVTX_CBID_CORE2_DomainRangePop]);
  nvtxEventAttributes_t event{};
  event.messageType = NVTX_MESSAGE_TYPE_UNICODE;
  for (const auto& [name, matches] :
       {std::pair(L"Schritt \u00FC \u2207 \U0001D11E", true), {L"Schritt u", false}}) {
    event.message.unicode = name;
    push(nullptr, &event);
    CHECK(ranges.inside() == matches);
    pop(nullptr);
    CHECK(!ranges.inside());
  }
}
#endif
