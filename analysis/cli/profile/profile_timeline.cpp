// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/cli/profile/profile.hpp"
#include "analysis/cli/profile/profile_records.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/record_kinds.hpp"
#include "analysis/records/run_record.hpp"
#include "analysis/report/figures/charts.hpp"
#include "common/number_format.hpp"
#include "profiler/records/field_schema.hpp"
#include "profiler/timing/timeline.hpp"

namespace tilescope::cli {
namespace {

constexpr double kLeastInterval_us = 10, kMostInterval_us = 1e6;
constexpr std::size_t kMostPoints = 600;  // of a line; what is finer cannot be seen

struct Line {
  const char* title;
  double TimelineSample::*member;
  Color color;
  Dash dash;
};

// Colours as in the report, apart in grey by their dashes.
constexpr Line kShares[] = {
    {"DRAM read", &TimelineSample::dram_read_share, Color::blue, Dash::solid},
    {"DRAM written", &TimelineSample::dram_write_share, Color::vermilion, Dash::dashed},
    {"tensor pipes", &TimelineSample::tensor_share, Color::ink, Dash::solid},
    {"SMs with work", &TimelineSample::sm_active_share, Color::grey, Dash::dotted},
};

/// The samples from the first in which the device did something to the last.
std::vector<TimelineSample> busy_part(const std::vector<TimelineSample>& samples) {
  const auto busy = [](const TimelineSample& sample) { return sample.sm_active_share > 0.001; };
  const auto first = std::ranges::find_if(samples, busy);
  const auto last = std::find_if(samples.rbegin(), samples.rend(), busy).base();
  return first < last ? std::vector<TimelineSample>(first, last) : std::vector<TimelineSample>{};
}

/// Means over as many samples as leave few enough points.
std::vector<ChartPoint> points_of(const std::vector<TimelineSample>& samples,
                                  double TimelineSample::*member) {
  const std::size_t group = samples.size() / kMostPoints + 1;
  std::vector<ChartPoint> points;
  for (std::size_t first = 0; first < samples.size(); first += group) {
    const std::size_t last = std::min(first + group, samples.size());
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += samples[i].*member;
    points.push_back(
        {samples[first].start_s - samples.front().start_s, 100 * sum / static_cast<double>(last - first)});
  }
  return points;
}

std::string percent_tick(double value) { return fmt::format("{:g}", value); }

std::string plot_of(const std::vector<TimelineSample>& samples) {
  LineChart chart;
  const double end_s = samples.back().start_s - samples.front().start_s + samples.back().length_s;
  chart.x = {"time", linear_ticks(end_s, format_seconds), 0, end_s, false};
  chart.y = {"share of the device's peak [percent]", linear_ticks(100, percent_tick), 0, 105, false};
  for (const Line& line : kShares) {
    Look look;
    look.color = line.color;
    look.dash = line.dash;
    chart.series.push_back({line.title, look, points_of(samples, line.member)});
  }
  return to_svg({.name = "timeline", .title = "The device against time", .panels = {{"", draw(chart)}}});
}

constexpr const char* kSchema = "tilescope.timeline/1";

/// A column of the record.
struct Column {
  const char* key;
  double TimelineSample::*member;
  double scale;  // times which values are rounded to whole numbers
};

constexpr Column kColumns[] = {
    {"start_s", &TimelineSample::start_s, 1e9},
    {"length_s", &TimelineSample::length_s, 1e9},
    {"dram_read_bytes", &TimelineSample::dram_read_bytes, 1},
    {"dram_write_bytes", &TimelineSample::dram_write_bytes, 1},
    {"dram_read_share", &TimelineSample::dram_read_share, 1e4},
    {"dram_write_share", &TimelineSample::dram_write_share, 1e4},
    {"tensor_share", &TimelineSample::tensor_share, 1e4},
    {"sm_active_share", &TimelineSample::sm_active_share, 1e4},
};

/// The samples by columns.
struct Columns {
  using Samples = std::vector<TimelineSample>;
  static Json schema() {
    FieldSchema fields;
    for (const Column& column : kColumns) fields.items(column.key, Number{}, Samples{});
    return fields.object();
  }
  Json write(const Samples& samples) const {
    Json columns;
    for (const Column& column : kColumns) {
      Json& values = columns[column.key] = Json::array();
      for (const TimelineSample& sample : samples) {
        values.push_back(std::round(sample.*column.member * column.scale) / column.scale);
      }
    }
    return columns;
  }
  Samples read(const JsonField& field) const {
    Samples samples(field.at("start_s").items().size());
    for (const Column& column : kColumns) {
      const std::vector<JsonField> values = field.at(column.key).items();
      if (values.size() != samples.size()) field.at(column.key).refuse("must be as many as the samples");
      for (std::size_t i = 0; i < values.size(); ++i) samples[i].*column.member = values[i].finite();
    }
    return samples;
  }
};

}  // namespace

struct TimelineFile {
  std::vector<std::string> argv;
  std::string when;
  DeviceName device;
  double interval_s = 0;
  bool overflowed = false;
  std::vector<TimelineSample> samples;
};

template <typename Fields>
static void list(Fields& fields, Of<Fields, TimelineFile>& file) {
  fields.items("argv", tilescope::Text{}, file.argv);
  fields.required("when", tilescope::Text{}, file.when);
  fields.required("machine", Part<DeviceName>{}, file.device);
  fields.required("interval_s", Positive{}, file.interval_s);
  fields.required("overflowed", Flag{}, file.overflowed);
  fields.required("samples", Columns{}, file.samples);
}

namespace {

Timeline read_record(const std::string& path) {
  const std::string text = read_text_file(path);
  const Json json = parse_json(path, text);
  require_kind(path, json, {kSchema});
  const auto file = Part<TimelineFile>{}.read(JsonField(path, json));
  return {file.device.name, file.device.chip, file.device.driver,
          file.interval_s,  file.samples,     file.overflowed};
}

/// Says what was seen and, if there is something to see, plots it.
void present(const Timeline& timeline, const std::string& path, const CommandContext& context) {
  const std::vector<TimelineSample> busy = busy_part(timeline.samples);
  if (busy.empty()) {
    context.print(fmt::format("{} samples of {}, none of them with work on the device: no plot\n",
                              timeline.samples.size(), timeline.device));
    return;
  }
  double read_bytes = 0, write_bytes = 0;
  for (const TimelineSample& sample : busy) {
    read_bytes += sample.dram_read_bytes;
    write_bytes += sample.dram_write_bytes;
  }
  context.print(fmt::format("{} ({}): {} samples of {:g} us while it was busy; DRAM read {}, written {}{}\n",
                            timeline.device, timeline.chip, busy.size(), 1e6 * timeline.interval_s,
                            format_bytes(read_bytes), format_bytes(write_bytes),
                            timeline.overflowed ? "; samples were lost: take a longer --interval" : ""));
  write_file_atomically("--timeline", path, plot_of(busy));
  context.print(path + ": DRAM, tensor pipes and SMs against time\n");
}

}  // namespace

Json timeline_schema() { return record_schema<TimelineFile>(kSchema); }

void profile_timeline(const TimelineOptions& options, const std::function<void()>& work,
                      const CommandContext& context) {
  if (!(options.interval_us >= kLeastInterval_us && options.interval_us <= kMostInterval_us)) {
    throw BadInput(
        "--interval", fmt::format("{}", options.interval_us),
        fmt::format("must lie in {:g} ... {:g} microseconds", kLeastInterval_us, kMostInterval_us));
  }
  require_writable_file("--timeline", options.plot);
  const Timeline timeline = sample_timeline(1e-6 * options.interval_us, work);
  const TimelineFile file{
      context.argv,        utc_now(),           {timeline.device, timeline.chip, timeline.driver},
      timeline.interval_s, timeline.overflowed, timeline.samples};
  context.write_json(record_json(kSchema, file).dump() + "\n");
  present(timeline, options.plot, context);
}

void plot_timeline(const TimelineOptions& options, const CommandContext& context) {
  const Timeline timeline = read_record(options.samples);
  require_writable_file("--timeline", options.plot);
  present(timeline, options.plot, context);
}

}  // namespace tilescope::cli
