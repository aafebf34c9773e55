// SPDX-License-Identifier: Apache-2.0
// Must, moved, why, what now: of published kernels in the committed records, to the byte.
#include "analysis/explain/answer.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/records/files/text_file.hpp"
#include "profiler/records/kernel_record.hpp"
#include "tests/paths.hpp"

namespace tilescope {
namespace {

ExplainRecord record_of(const std::string& filter, std::optional<ReadWriteBytes> must = std::nullopt) {
  const std::string path = TILESCOPE_SOURCE_DIR "/reports/foreign/mha.json.gz";
  ExplainInput input;
  input.problem.batch = 2;
  input.problem.heads = input.problem.heads_kv = 16;
  input.problem.seqlen_q = input.problem.seqlen_k = 4096;
  input.problem.head_dim = 128;
  input.problem.dtype = ElementType::fp16;
  input.directions = {Direction::forward, Direction::backward};
  input.must = must;
  return explain_record({}, path, parse_kernel_record(path, read_text_file(path)), {filter}, input);
}

LaunchAnswer answer_of(const ExplainRecord& record) {
  const std::vector<LaunchAnswer> all = answers(record, explain(record));
  REQUIRE(all.size() == 1);
  return all.front();
}

/// All that was moved beyond what must be, by the causes.
std::int64_t sum_of_causes(const LaunchAnswer& answer, bool reads) {
  std::int64_t sum = 0;
  for (const AnswerCause& cause : answer.causes) {
    if (cause.boundary == Boundary::sm_l2 && cause.reads == reads) sum += cause.bytes;
  }
  return sum;
}

}  // namespace

TEST_CASE("PyTorch's forward kernel is explained with its spills, and told what would end them") {
  const LaunchAnswer answer = answer_of(record_of("flash_fwd"));
  constexpr std::int64_t kTensor = 2 * 16 * 4096 * 128 * 2, kLse = 2 * 16 * 4096 * 4;
  REQUIRE(answer.must);
  CHECK(*answer.must == ReadWriteBytes{3 * kTensor, kTensor + kLse});
  CHECK(answer.sm_l2 == ReadWriteBytes{2181231232, 511180800});
  CHECK(answer.verdict.starts_with("explained: forward, 128 x 64, with 477.1 MB of spills; "));
  CHECK(*answer.multiple(Boundary::sm_l2) == doctest::Approx(19.98).epsilon(1e-3));
  CHECK(*answer.multiple(Boundary::dram) == doctest::Approx(1.003).epsilon(1e-3));  // of reads alone
  const auto spills =
      std::ranges::find_if(answer.causes, [](const AnswerCause& cause) { return cause.name == "spills"; });
  REQUIRE(spills != answer.causes.end());
  CHECK(spills->bytes == 477102080);
  CHECK(sum_of_causes(answer, true) == answer.sm_l2.read_bytes - answer.must->read_bytes);
  CHECK(sum_of_causes(answer, false) == answer.sm_l2.write_bytes - answer.must->write_bytes);
  REQUIRE(answer.next_steps.size() == 2);
  CHECK(answer.next_steps[0].action == "tiles of 256 x 64");
  CHECK(answer.next_steps[0].bytes_now - answer.next_steps[0].bytes_then == 2 * 16 * 16 * 2 * 4096 * 256);
  CHECK(answer.next_steps[1].action.starts_with("36 registers fewer"));
}

TEST_CASE("where less crossed DRAM than must be moved, the L2 held the rest, and the answer says so") {
  LaunchAnswer answer = answer_of(record_of("flash_fwd"));
  constexpr const char* kWhy = "the L2 was warm and held the rest";
  CHECK(to_text(answer, 200).find(kWhy) == std::string::npos);
  answer.dram->read_bytes /= 2;
  CHECK(to_text(answer, 200).find("0.50x at DRAM (reads; the L2 was warm and held the rest)") !=
        std::string::npos);
  answer.dram_writes_counted = true;
  CHECK(to_text(answer, 200).find("x at DRAM (the L2 was warm and held the rest)") != std::string::npos);
}

TEST_CASE("what two parts of a launch read must cross once") {
  // Each CTA of the memory-efficient backward computes delta beside its products, and reads dO for both.
  const LaunchAnswer answer = answer_of(record_of("fmha_cutlassB"));
  constexpr std::int64_t kTensor = 2 * 16 * 4096 * 128 * 2, kRows = 2 * 16 * 4096 * 4;
  REQUIRE(answer.must);
  CHECK(*answer.must == ReadWriteBytes{5 * kTensor + 2 * kRows, 3 * kTensor + kRows});
}

TEST_CASE("a step that is advised moves what was said, by the closed form of the program with that tile") {
  const ExplainRecord record = record_of("triton_attn_dq");
  const std::vector<KernelFit> fits = explain(record);
  const LaunchAnswer answer = answers(record, fits).front();
  REQUIRE(!answer.next_steps.empty());
  TileProgram program = fits.front().best->parts.front();
  program.tile = {256, std::stoi(answer.next_steps[0].action.substr(15))};
  program.grid.num_blocks = program.num_blocks();
  const ClosedFormBytes bytes = closed_form_bytes(program);
  const std::int64_t left = answer.left_over.total();
  CHECK(answer.next_steps[0].bytes_then == bytes.sm_l2_bytes() + left);
}

TEST_CASE("kernels that are no attention have bytes and a ceiling, and must move what is said") {
  const LaunchAnswer copy = answer_of(record_of("elementwise_kernel<128, 2,"));
  CHECK(copy.agreement == Agreement::no_attention);
  CHECK_FALSE(copy.must);
  CHECK(copy.of_ceiling);
  const LaunchAnswer told =
      answer_of(record_of("elementwise_kernel<128, 2,", ReadWriteBytes{1 << 26, 1 << 25}));
  CHECK(*told.multiple(Boundary::sm_l2) == doctest::Approx(4.0 / 3).epsilon(1e-3));
  CHECK(told.must_from == "--reads and --writes");
  CHECK(to_text(told, 100).find("left over") != std::string::npos);
  CHECK(to_markdown({told}).find("| 1.33x |") != std::string::npos);
}

TEST_CASE("a backward pass has two tiles of scores, which no advised tile spills") {
  // On an H200 tiles of 256 x 64 spilled, and moved three times as much.
  const LaunchAnswer backward = answer_of(record_of("triton_attn_dq"));
  REQUIRE(backward.next_steps.size() == 1);
  CHECK(backward.next_steps[0].action == "tiles of 256 x 32");
  const LaunchAnswer forward = answer_of(record_of("triton_attn_forward"));
  REQUIRE(forward.next_steps.size() == 1);
  CHECK(forward.next_steps[0].action == "tiles of 256 x 64");
  CHECK(forward.next_steps[0].bytes_then == 1141374976);  // as was measured of that tile
}

TEST_CASE("a length that kernels speak against is refused with the one by which they wrote their results") {
  ExplainRecord record = record_of("flash_fwd|flash_bprop|fmha");
  record.problem.seqlen_q = record.problem.seqlen_k = 4000;
  const std::string said = doubt(record, explain(record));
  CHECK(said.find("seqlen is 4000, and 4 fit with 4096") != std::string::npos);
  record.problem.seqlen_q = record.problem.seqlen_k = 4096;
  CHECK(doubt(record, explain(record)).empty());
}

TEST_CASE("the nearest program by bytes alone is none that the kernel's name denies") {
  ExplainRecord record = record_of("flash_fwd");
  record.problem.seqlen_q = record.problem.seqlen_k = 256;
  const KernelFit fit = explain(record).front();
  REQUIRE(fit.hints.size() == 1);
  CHECK(fit.hints[0].find("forward, 128 x 64, but its grid has 1024 CTAs") != std::string::npos);
}

TEST_CASE("no fill, copy or reduction of a framework is named as a pass of attention") {
  const ExplainRecord record = record_of("at::native");
  for (const KernelFit& fit : explain(record)) CHECK(fit.agreement == Agreement::no_attention);
}

}  // namespace tilescope
