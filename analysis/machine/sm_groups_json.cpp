// SPDX-License-Identifier: Apache-2.0
#include "analysis/machine/sm_groups_json.hpp"

namespace tilescope {

void to_json(Json& json, const SmGroup& group) { json = {{"sms", group.sms}, {"part", group.part}}; }

std::vector<SmGroup> parse_sm_groups(const JsonField& field, std::int64_t most_sms, std::int64_t num_parts) {
  std::vector<SmGroup> groups;
  for (const JsonField& group : field.items()) {
    groups.push_back({static_cast<int>(group.at("sms").integer(1, most_sms)),
                      static_cast<int>(group.at("part").integer(0, num_parts - 1))});
  }
  return groups;
}

}  // namespace tilescope
