// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/counted_causes.hpp"

#include <doctest/doctest.h>

namespace tilescope {
namespace {

TEST_CASE("without counters of what L1 merged, spills are no more than the stores beyond those asked for") {
  const std::vector<NamedCause> causes =
      counted_causes({{"local_store_bytes", 1000}, {"store_bytes", 500}, {"stored_data_bytes", 300}});
  CHECK(causes == std::vector<NamedCause>{{CauseKind::spills, "spills", "local_store_bytes", 200, false}});
  CHECK(counted_causes({{"local_store_bytes", 1000}, {"store_bytes", 300}, {"stored_data_bytes", 500}})
            .empty());
}

TEST_CASE("atomics are a cause only beyond the words of the program") {
  const std::map<std::string, double> counted = {{"atomic_read_bytes", 96}, {"atomic_write_bytes", 128}};
  ClosedFormBytes said;
  said.word_read_bytes = 96;
  said.word_write_bytes = 160;  // of which some are stored
  CHECK(counted_causes(counted, said).empty());
  said.word_write_bytes = 100;
  CHECK(sum_of(counted_causes(counted, said), false) == 28);
  CHECK(sum_of(counted_causes(counted), true) == 96);
}

TEST_CASE("causes add up by side") {
  const std::vector<NamedCause> causes = counted_causes({{"local_store_bytes", 64},
                                                         {"store_bytes", 500},
                                                         {"stored_data_bytes", 300},
                                                         {"global_store_bytes", 420},
                                                         {"merged_store_bytes", 32},
                                                         {"local_reload_bytes", 96},
                                                         {"atomic_read_bytes", 8},
                                                         {"atomic_write_bytes", 16}});
  CHECK(sum_of(causes, false) == 64 + (420 - 300) - 32 + 16);
  CHECK(sum_of(causes, true) == 96 + 8);
}

}  // namespace
}  // namespace tilescope
