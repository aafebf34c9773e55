// SPDX-License-Identifier: Apache-2.0
// Skipping, with a message, of tests that need what this machine may lack.
#pragma once

#include <doctest/doctest.h>

#include "common/errors.hpp"
#include "profiler/counters/metric_catalogue.hpp"

namespace tilescope::testing {

/// Runs `body(catalogue)`, or says that there is no libcupti to ask.
template <class Body>
void with_catalogue(const std::string& chip, Body body) {
  std::unique_ptr<MetricCatalogue> catalogue;
  try {
    catalogue = std::make_unique<MetricCatalogue>(chip);
  } catch (const MachineLacks& reason) {
    MESSAGE("skipped: ", std::string(reason.what()));
    return;
  }
  body(*catalogue);
}

}  // namespace tilescope::testing
