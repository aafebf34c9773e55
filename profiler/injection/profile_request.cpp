// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/profile_request.hpp"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/errors.hpp"

namespace tilescope {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kTrace = "trace";
constexpr const char* kCounters = "counters";

}  // namespace

std::string to_text(const ProfileRequest& request) {
  return Json{{"what", request.what == ProfileRequest::What::trace ? kTrace : kCounters},
              {"folder", request.folder},
              {"metrics", request.metrics},
              {"part", request.part},
              {"kernel_filter", request.kernel_filter},
              {"nvtx_filter", request.nvtx_filter},
              {"l2", to_string(request.l2)},
              {"skip", request.skip},
              {"count", request.count},
              {"communication", request.communication}}
      .dump();
}

ProfileRequest parse_profile_request(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    return {json.at("what").get<std::string>() == kTrace ? ProfileRequest::What::trace
                                                         : ProfileRequest::What::counters,
            json.at("folder").get<std::string>(),
            json.at("metrics").get<std::string>(),
            json.at("part").get<std::int64_t>(),
            json.at("kernel_filter").get<std::string>(),
            json.at("nvtx_filter").get<std::string>(),
            parse_l2_state(json.at("l2").get<std::string>()),
            json.at("skip").get<std::int64_t>(),
            json.at("count").get<std::int64_t>(),
            json.at("communication").get<bool>()};
  } catch (const Json::exception& error) {
    throw BadInput(kRequestVariable, text,
                   std::string("must be set by `tilescope profile` (") + error.what() + ")");
  }
}

std::optional<ProfileRequest> request_from_environment() {
  const char* text = std::getenv(kRequestVariable);
  if (!text) return std::nullopt;
  return parse_profile_request(text);
}

}  // namespace tilescope
