// SPDX-License-Identifier: Apache-2.0
// `tilescope profile --timeline`: what the device does against time, as a plot and a record.
#pragma once

#include <functional>
#include <string>

#include "analysis/cli/command.hpp"

namespace tilescope::cli {

struct TimelineOptions {
  std::string plot;            // where the SVG goes; empty: no timeline is asked for
  double interval_us = 100.0;  // of a sample
  std::string samples;         // a record to plot instead of sampling; empty: none
};

/// Samples the device while `work` runs and writes the plot, and the record of schema tilescope.timeline/1
/// where --json says.
/// @throws BadInput before anything runs, MachineLacks
void profile_timeline(const TimelineOptions& options, const std::function<void()>& work,
                      const CommandContext& context);

/// Writes the plot of the record options.samples. @throws BadInput
void plot_timeline(const TimelineOptions& options, const CommandContext& context);

}  // namespace tilescope::cli
