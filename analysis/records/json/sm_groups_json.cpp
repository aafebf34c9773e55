// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/json/sm_groups_json.hpp"

namespace tilescope {

void to_json(Json& json, const SmGroup& group) {
  json = {{"sms", group.sms}, {"partition", group.partition}};
}

std::vector<SmGroup> parse_sm_groups(const JsonField& field, std::int64_t most_sms,
                                     std::int64_t num_partitions) {
  std::vector<SmGroup> groups;
  for (const JsonField& group : field.items()) {
    groups.push_back({static_cast<int>(group.at("sms").integer(1, most_sms)),
                      static_cast<int>(group.at("partition", "part").integer(0, num_partitions - 1))});
  }
  return groups;
}

}  // namespace tilescope
