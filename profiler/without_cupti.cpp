// SPDX-License-Identifier: Apache-2.0
// Stands in for everything that needs CUPTI's headers in a build made without them.
#include "profiler/metric_catalogue.hpp"

#include "cpu_ref/errors.hpp"

namespace tilescope {
namespace {

[[noreturn]] void refuse() {
  throw MachineLacks(
      "this build knows no hardware counters: CUPTI's headers were not found when it was configured; install "
      "the "
      "CUDA toolkit and build again");
}

}  // namespace

struct MetricCatalogue::State {};

MetricCatalogue::MetricCatalogue(const std::string&) { refuse(); }
MetricCatalogue::~MetricCatalogue() = default;
MetricCatalogue::MetricCatalogue(MetricCatalogue&&) noexcept = default;
std::vector<std::string> MetricCatalogue::chips() { refuse(); }
const std::string& MetricCatalogue::chip() const { refuse(); }
const std::vector<std::string>& MetricCatalogue::base_names() const { refuse(); }
bool MetricCatalogue::has(const std::string&) const { refuse(); }
std::string MetricCatalogue::description(const std::string&) const { refuse(); }
int MetricCatalogue::passes(const std::vector<std::string>&) const { refuse(); }

}  // namespace tilescope
