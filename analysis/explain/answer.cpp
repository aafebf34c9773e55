// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/model/counts/roofline.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

std::string verdict_of(const KernelFit& fit) {
  std::string text(to_string(fit.agreement));
  if (fit.agreement == Agreement::no_attention || fit.programs.empty()) return text;
  const ProgramFit& best = fit.programs.front();
  text += fit.agreement == Agreement::unexplained ? ", nearest: " : ": ";
  text += best.text();
  for (const NamedCause& cause : fit.causes) {
    const bool written = cause.kind == CauseKind::spills && !cause.reads;
    if (written && fit.best && 10 * cause.bytes > fit.best->bytes.write_bytes) {
      text += ", with " + format_bytes(static_cast<double>(cause.bytes)) + " of spills";
    }
  }
  if (fit.chance) text += fmt::format("; {} by chance", chance_text(*fit.chance));
  if (best.posterior > 0 && best.posterior < 0.995) {
    text += fmt::format("; {:.0f} % likely among all that fit", 100 * best.posterior);
  }
  return text;
}

/// What the kernel must move: what was given, or the operands of its program, each once.
void set_must(LaunchAnswer& answer, const ExplainRecord& record, const KernelFit& fit) {
  if (record.must) {
    answer.must = record.must;
    answer.must_from = "--reads and --writes";
    return;
  }
  const bool known =
      fit.best && fit.agreement != Agreement::unexplained && fit.agreement != Agreement::no_attention;
  if (!known) return;
  answer.must = fit.best->must;
  answer.must_from = fit.best->name;
}

/// Bytes of the program beyond its operands, and what it adds to in memory.
void add_program_causes(std::vector<AnswerCause>& causes, const CandidateProgram& program) {
  const auto add = [&causes](const char* name, bool reads, std::int64_t bytes) {
    if (bytes != 0) causes.push_back({name, Boundary::sm_l2, reads, bytes, "closed form"});
  };
  add("tiles read again", true, program.bytes.read_bytes - program.filled_bytes - program.must.read_bytes);
  add("boxes beyond the tensors", true, program.filled_bytes);
  const std::int64_t more = program.bytes.write_bytes - program.must.write_bytes;
  add(program.reduce_bytes > 0 ? "sums added to again" : "tiles written again", false, more);
}

void add_causes(LaunchAnswer& answer, const KernelGroup& kernel, const KernelFit& fit) {
  const bool by_program = answer.must && fit.best && answer.must_from == fit.best->name;
  if (by_program) add_program_causes(answer.causes, *fit.best);
  if (by_program && fit.asked_again_bytes != 0) {
    answer.causes.push_back({"asked for again and not served by L1", Boundary::sm_l2, true,
                             fit.asked_again_bytes, "closed form less l1_load_hit_bytes"});
  }
  for (const NamedCause& cause : fit.causes) {
    answer.causes.push_back({cause.name, Boundary::sm_l2, cause.reads, cause.bytes, cause.metric});
  }
  if (answer.must) {
    for (const bool reads : {true, false}) {
      std::int64_t rest = (reads ? answer.sm_l2.read_bytes : answer.sm_l2.write_bytes) -
                          (reads ? answer.must->read_bytes : answer.must->write_bytes);
      for (const AnswerCause& cause : answer.causes) rest -= cause.reads == reads ? cause.bytes : 0;
      (reads ? answer.left_over.read_bytes : answer.left_over.write_bytes) = rest;
      const char* name = rest < 0 && metric_of(kernel, "l1_load_hit_bytes").value_or(0) >= -rest && reads
                             ? "served by L1"
                             : "left over";
      if (rest != 0) answer.causes.push_back({name, Boundary::sm_l2, reads, rest, ""});
    }
  }
  if (answer.must && answer.dram) {
    const auto beyond = [&](bool reads, std::int64_t moved, std::int64_t must) {
      if (moved > must) {
        answer.causes.push_back({reads ? "L2 misses of what was there before" : "written back early",
                                 Boundary::dram, reads, moved - must, "counters"});
      }
    };
    beyond(true, answer.dram->read_bytes, answer.must->read_bytes);
    if (answer.dram_writes_counted) {
      beyond(false, answer.dram->write_bytes, answer.must->write_bytes);
    }
  }
  std::ranges::stable_sort(answer.causes, [](const AnswerCause& a, const AnswerCause& b) {
    return std::abs(a.bytes) > std::abs(b.bytes);
  });
}

/// Of the run with counters, in which the kernel may be slower than by itself.
void set_ceiling(LaunchAnswer& answer, const KernelGroup& kernel, const KernelFit& fit,
                 const std::optional<Machine>& machine, ElementType dtype) {
  const auto nanoseconds = metric_of(kernel, "counter_run_duration");
  if (!machine || !nanoseconds || *nanoseconds <= 0) return;
  KernelWork work;
  if (answer.must && fit.best && answer.must_from == fit.best->name) {
    for (const TileProgram& part : fit.best->parts) work.flops += useful_flops(part);
  }
  work.sm_l2_bytes = answer.sm_l2.total();
  if (answer.dram) work.dram_bytes = answer.dram->total();
  const Roofline roof = roofline(work, ceilings_of(with_measured_ceilings(*machine), dtype));
  if (roof.least_seconds) {
    answer.of_ceiling = {roof.limit, *roof.least_seconds / (1e-9 * static_cast<double>(*nanoseconds))};
  }
}

}  // namespace

std::string_view to_string(Boundary boundary) { return boundary == Boundary::sm_l2 ? "SM<->L2" : "DRAM"; }

std::optional<double> LaunchAnswer::multiple(Boundary boundary) const {
  const auto bytes = moved(boundary);
  if (!must || !bytes) return std::nullopt;
  const bool reads_alone = boundary == Boundary::dram && !dram_writes_counted;
  const std::int64_t least = reads_alone ? must->read_bytes : must->total();
  if (least == 0) return std::nullopt;
  return static_cast<double>(bytes->total()) / static_cast<double>(least);
}

bool dram_reads_alone(const std::vector<LaunchAnswer>& answers) {
  return std::ranges::none_of(answers, &LaunchAnswer::dram_writes_counted);
}

std::optional<Machine> machine_behind(const ExplainRecord& record) {
  return record.collections.empty() ? std::nullopt : machine_of_device(record.collections.front().device);
}

std::vector<LaunchAnswer> answers(const ExplainRecord& record, const std::vector<KernelFit>& fits) {
  const std::optional<Machine> machine = machine_behind(record);
  std::vector<LaunchAnswer> all;
  for (std::size_t i = 0; i < fits.size(); ++i) {
    const KernelGroup& kernel = record.kernels[i];
    LaunchAnswer answer;
    answer.kernel = kernel.name;
    answer.launches = kernel.launches;
    answer.agreement = fits[i].agreement;
    answer.verdict = verdict_of(fits[i]);
    answer.sm_l2 = {metric_of(kernel, "sm_l2_read_bytes").value_or(0),
                    metric_of(kernel, "sm_l2_write_bytes").value_or(0)};
    if (const auto read = metric_of(kernel, "dram_read_bytes")) {
      const auto written = metric_of(kernel, "dram_write_bytes");
      answer.dram = ReadWriteBytes{*read, written.value_or(0)};
      answer.dram_writes_counted = written.has_value();
    }
    answer.left_over = {fits[i].read_residual_bytes, fits[i].write_residual_bytes};
    set_must(answer, record, fits[i]);
    add_causes(answer, kernel, fits[i]);
    set_ceiling(answer, kernel, fits[i], machine, record.problem.dtype);
    answer.next_steps = next_steps(answer, kernel, fits[i], machine);
    answer.remarks = fits[i].hints;
    if (record.must && fits[i].agreement != Agreement::explained) {  // no tile program is asked for
      answer.verdict = answer.left_over.total() == 0 ? "each byte has its cause" : "bytes are left over";
    }
    all.push_back(std::move(answer));
  }
  return all;
}

}  // namespace tilescope
