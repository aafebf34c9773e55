// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/injected/nvtx_ranges.hpp"

#include <map>
#include <vector>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define TILESCOPE_CAN_CONNECT_NVTX 1
#endif

namespace tilescope {
namespace {

/// Whether each open range of this thread matches, outermost first, by domain.
std::vector<bool>& nesting(const void* domain) {
  thread_local std::map<const void*, std::vector<bool>> stacks;
  return stacks[domain];
}

#ifdef TILESCOPE_CAN_CONNECT_NVTX

/// NVTX's callbacks carry no user data.
NvtxRanges*& connected() {
  static NvtxRanges* ranges = nullptr;
  return ranges;
}

/// A name in UTF-8, in which the filter is written. What is no code point becomes a question mark.
std::string to_utf8(const wchar_t* name) {
  std::string text;
  for (; name && *name; ++name) {
    auto code = static_cast<std::uint32_t>(*name);
    if (code > 0x10FFFF) code = '?';
    if (code < 0x80) {
      text += static_cast<char>(code);
      continue;
    }
    const int following = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;  // bytes of six bits each
    constexpr std::uint32_t kFirst[] = {0, 0xC0, 0xE0, 0xF0};
    text += static_cast<char>(kFirst[following] | code >> 6 * following);
    for (int i = following - 1; i >= 0; --i) text += static_cast<char>(0x80 | (code >> 6 * i & 0x3F));
  }
  return text;
}

/// Names that the process registered, to be passed as handles ever after. A handle is the name's place here.
class RegisteredNames {
 public:
  nvtxStringHandle_t add(const char* name) {
    const std::lock_guard lock(mutex_);
    const std::string& kept = *names_.insert(name ? name : "").first;
    const auto handle = reinterpret_cast<nvtxStringHandle_t>(const_cast<char*>(kept.c_str()));
    handles_.insert(handle);
    return handle;
  }
  /// Null for what is no handle of ours.
  const char* find(nvtxStringHandle_t handle) {
    const std::lock_guard lock(mutex_);
    return handles_.count(handle) > 0 ? reinterpret_cast<const char*>(handle) : nullptr;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
  std::set<nvtxStringHandle_t> handles_;
};

RegisteredNames& registered_names() {
  static RegisteredNames& names = *new RegisteredNames;  // exit handlers of the process may still use it
  return names;
}

nvtxStringHandle_t register_name(nvtxDomainHandle_t, const char* name) {
  return registered_names().add(name);
}
nvtxStringHandle_t register_wide_name(nvtxDomainHandle_t, const wchar_t* name) {
  return registered_names().add(to_utf8(name).c_str());
}

/// The name that an event carries, for as long as this lives.
class EventName {
 public:
  explicit EventName(const nvtxEventAttributes_t* event) {
    if (!event) return;
    switch (event->messageType) {
      case NVTX_MESSAGE_TYPE_REGISTERED:
        text_ = registered_names().find(event->message.registered);
        return;
      case NVTX_MESSAGE_TYPE_ASCII:
        text_ = event->message.ascii;
        return;
      case NVTX_MESSAGE_TYPE_UNICODE:
        narrow_ = to_utf8(event->message.unicode);
        text_ = narrow_.c_str();
        return;
      default:
        return;
    }
  }
  EventName(const EventName&) = delete;
  EventName& operator=(const EventName&) = delete;
  /// nullptr: none
  const char* text() const { return text_; }

 private:
  std::string narrow_;
  const char* text_ = nullptr;
};

int push_ascii(const char* name) {
  connected()->push(nullptr, name);
  return 0;
}
int push_wide(const wchar_t* name) { return push_ascii(to_utf8(name).c_str()); }
int push_event(const nvtxEventAttributes_t* event) { return push_ascii(EventName(event).text()); }
int pop() {
  connected()->pop(nullptr);
  return 0;
}
nvtxRangeId_t start_ascii(const char* name) {
  const std::uint64_t id = connected()->next_id();
  connected()->start(id, name);
  return id;
}
nvtxRangeId_t start_wide(const wchar_t* name) { return start_ascii(to_utf8(name).c_str()); }
nvtxRangeId_t start_event(const nvtxEventAttributes_t* event) { return start_ascii(EventName(event).text()); }
void end(nvtxRangeId_t id) { connected()->end(id); }
int domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  connected()->push(domain, EventName(event).text());
  return 0;
}
int domain_pop(nvtxDomainHandle_t domain) {
  connected()->pop(domain);
  return 0;
}
nvtxRangeId_t domain_start(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  return start_event(event);
}
void domain_end(nvtxDomainHandle_t, nvtxRangeId_t id) { end(id); }

struct Hook {
  unsigned id;
  NvtxFunctionPointer function;
};

template <class Function>
NvtxFunctionPointer untyped(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

bool hook_up(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module,
             const std::vector<Hook>& hooks) {
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks.GetModuleFunctionTable(module, &table, &size) || !table) return false;
  for (const Hook& hook : hooks) {
    if (hook.id < size && table[hook.id]) *table[hook.id] = hook.function;
  }
  return true;
}

#endif

}  // namespace

void NvtxRanges::push(const void* domain, const char* name) {
  const bool match = matches(name);
  nesting(domain).push_back(match);
  open_ += match;
}

void NvtxRanges::pop(const void* domain) {
  std::vector<bool>& open = nesting(domain);
  if (open.empty()) return;  // more ends than beginnings are the process's affair
  open_ -= open.back();
  open.pop_back();
}

void NvtxRanges::start(std::uint64_t id, const char* name) {
  if (!matches(name)) return;
  const std::lock_guard lock(mutex_);
  if (started_.insert(id).second) ++open_;
}

void NvtxRanges::end(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  if (started_.erase(id) > 0) --open_;
}

#ifdef TILESCOPE_CAN_CONNECT_NVTX

bool connect_nvtx(const void* (*get_export_table)(std::uint32_t), NvtxRanges& ranges) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (!callbacks || callbacks->struct_size < sizeof *callbacks) return false;
  connected() = &ranges;
  const bool plain = hook_up(*callbacks, NVTX_CB_MODULE_CORE,
                             {{NVTX_CBID_CORE_RangePushA, untyped(push_ascii)},
                              {NVTX_CBID_CORE_RangePushW, untyped(push_wide)},
                              {NVTX_CBID_CORE_RangePushEx, untyped(push_event)},
                              {NVTX_CBID_CORE_RangePop, untyped(pop)},
                              {NVTX_CBID_CORE_RangeStartA, untyped(start_ascii)},
                              {NVTX_CBID_CORE_RangeStartW, untyped(start_wide)},
                              {NVTX_CBID_CORE_RangeStartEx, untyped(start_event)},
                              {NVTX_CBID_CORE_RangeEnd, untyped(end)}});
  const bool domains = hook_up(*callbacks, NVTX_CB_MODULE_CORE2,
                               {{NVTX_CBID_CORE2_DomainRangePushEx, untyped(domain_push)},
                                {NVTX_CBID_CORE2_DomainRangePop, untyped(domain_pop)},
                                {NVTX_CBID_CORE2_DomainRangeStartEx, untyped(domain_start)},
                                {NVTX_CBID_CORE2_DomainRangeEnd, untyped(domain_end)},
                                {NVTX_CBID_CORE2_DomainRegisterStringA, untyped(register_name)},
                                {NVTX_CBID_CORE2_DomainRegisterStringW, untyped(register_wide_name)}});
  return plain || domains;
}

#else

bool connect_nvtx(const void* (*)(std::uint32_t), NvtxRanges&) { return false; }

#endif

}  // namespace tilescope
