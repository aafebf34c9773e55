// SPDX-License-Identifier: Apache-2.0
// `tilescope run`, run as a user runs it: files in, files out, and nothing half-written.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "analysis/records/files/npy_file.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/judge/equivalence.hpp"
#include "tests/cli/program.hpp"

namespace tilescope::testing {
namespace {

namespace fs = std::filesystem;

const AttentionProblem kProblem{.batch = 2,
                                .heads = 4,
                                .heads_kv = 2,
                                .seqlen_q = 20,
                                .seqlen_k = 33,
                                .head_dim = 24,
                                .causal = true,
                                .seed = 5};

/// Writes q, k, v and dout of a problem as .npy files.
TensorSet write_inputs(const fs::path& folder, const AttentionProblem& problem) {
  TensorSet inputs(problem);
  fill_random_inputs(inputs, Direction::backward);
  const NpyOutput files[] = {{"q.npy", &inputs[TensorName::q]},
                             {"k.npy", &inputs[TensorName::k]},
                             {"v.npy", &inputs[TensorName::v]},
                             {"dout.npy", &inputs[TensorName::dout]}};
  write_npy_files("out", folder.string(), files);
  return inputs;
}

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

/// The tensor in a file is what the judge lets pass. An LSE file has rank 3.
void check_file(const fs::path& path, const Reference& reference, TensorName name) {
  CAPTURE(path);
  const std::span<const double> expected = reference.exact()[name];
  std::string text(fs::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(text.data(), static_cast<std::streamsize>(text.size()));
  const std::size_t data_bytes = 4 * expected.size();
  REQUIRE(text.size() > data_bytes);
  Tensor tensor({1, 1, 1, static_cast<std::int64_t>(expected.size())}, ElementType::fp32);
  text.copy(static_cast<char*>(tensor.data()), data_bytes, text.size() - data_bytes);
  CHECK(compare(tensor, expected).within(reference.bound(name).bound()));
}

std::vector<std::string> command(std::vector<std::string> options) {
  options.insert(options.begin(), {"run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy"});
  return options;
}

/// The bytes of a file.
std::string bytes_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A tensor with rows, heads and columns elsewhere: element (b, h, n, d) goes to place(b, h, n, d).
template <typename Place>
Tensor rearranged(const Tensor& tensor, Shape shape, Place place) {
  Tensor result(shape, tensor.dtype());
  const Shape& from = tensor.shape();
  for (std::int64_t b = 0; b < from.batch; ++b) {
    for (std::int64_t h = 0; h < from.heads; ++h) {
      for (std::int64_t n = 0; n < from.rows; ++n) {
        for (std::int64_t d = 0; d < from.cols; ++d) {
          result.set(place(b, h, n, d), tensor.get(tensor.row_index(b, h, n) + d));
        }
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("queries, keys and values in one array, and values stored transposed, give the same bytes") {
  const TemporaryFolder folder;
  AttentionProblem problem = kProblem;
  problem.heads_kv = problem.heads;
  problem.seqlen_k = problem.seqlen_q;
  const TensorSet inputs = write_inputs(folder.path(), problem);
  const std::int64_t n_all = problem.seqlen_q, heads = problem.heads, cols = problem.head_dim;
  Tensor packed({problem.batch, n_all, 3 * heads, cols}, ElementType::fp32);
  for (const auto& [part, name] : {std::pair{0, TensorName::q}, {1, TensorName::k}, {2, TensorName::v}}) {
    const Tensor& tensor = inputs[name];
    for (std::int64_t row = 0; row < problem.batch * heads * n_all; ++row) {
      const std::int64_t batch = row / (heads * n_all), head = row / n_all % heads, n = row % n_all;
      for (std::int64_t d = 0; d < cols; ++d) {
        packed.set(((batch * n_all + n) * 3 * heads + part * heads + head) * cols + d,
                   tensor.get(row * cols + d));
      }
    }
  }
  const Tensor transposed =
      rearranged(inputs[TensorName::v], {problem.batch, heads, cols, n_all},
                 [&](auto b, auto h, auto n, auto d) { return ((b * heads + h) * cols + d) * n_all + n; });
  write_npy_files("out", folder.path().string(),
                  std::vector<NpyOutput>{{"qkv.npy", &packed}, {"vt.npy", &transposed}});
  std::string file = bytes_of_file(folder.path() / "qkv.npy");
  const std::string four = "(2, 20, 12, 24), }  ", five = "(2, 20, 3, 4, 24), }";
  REQUIRE(file.find(four) != std::string::npos);
  file.replace(file.find(four), four.size(), five);
  std::ofstream(folder.path() / "qkv.npy", std::ios::binary) << file;
  const std::vector<std::string> common = {"--causal", "--dout", "dout.npy", "--out"};
  const auto run_with = [&](std::vector<std::string> options, const std::string& out) {
    options.insert(options.end(), common.begin(), common.end());
    options.push_back(out);
    const ProgramResult result = run_program(options, folder.path());
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
  };
  run_with(command({}), "plain");
  run_with({"run", "--qkv", "qkv.npy"}, "packed");
  run_with({"run", "--q", "q.npy", "--k", "k.npy", "--v", "vt.npy", "--v-transposed"}, "transposed");
  for (const char* name : {"o.npy", "lse.npy", "dq.npy", "dk.npy", "dv.npy"}) {
    CAPTURE(name);
    const std::string expected = bytes_of_file(folder.path() / "plain" / name);
    CHECK(expected.size() > 100);
    CHECK(bytes_of_file(folder.path() / "packed" / name) == expected);
    CHECK(bytes_of_file(folder.path() / "transposed" / name) == expected);
  }
  const auto refused = [&](std::vector<std::string> options, const std::string& why) {
    const ProgramResult result = run_program(options, folder.path());
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(why) != std::string::npos);
  };
  refused({"run", "--qkv", "q.npy", "--out", "o"}, "five axes (B, N, 3, H, D)");
  refused({"run", "--qkv", "qkv.npy", "--k", "k.npy", "--out", "o"}, "k = k.npy: must be left out");
  refused(command({"--v-transposed", "--out", "o"}),
          "v = v.npy: must have the shape (2, 4, 24, 20) of k, transposed, not (2, 4, 20, 24)");
}

TEST_CASE("run computes what the files ask for, forward and backward") {
  for (const std::string kernel : {"cpu:flash2", "cpu:standard"}) {
    CAPTURE(kernel);
    const TemporaryFolder folder;
    TensorSet inputs = write_inputs(folder.path(), kProblem);
    const ProgramResult result =
        run_program(command({"--dout", "dout.npy", "--causal", "--out", "deep/results", "--kernel", kernel,
                             "--seed", "5", "--json", "run.json"}),
                    folder.path());
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.out == kernel + " on " + describe(kProblem) +
                            ": o.npy, lse.npy, dq.npy, dk.npy, dv.npy in deep/results\n");
    const fs::path out = folder.path() / "deep/results";
    CHECK(files_in(out) == std::set<std::string>{"o.npy", "lse.npy", "dq.npy", "dk.npy", "dv.npy"});
    const Reference reference(std::move(inputs), Direction::backward);
    check_file(out / "o.npy", reference, TensorName::out);
    check_file(out / "lse.npy", reference, TensorName::lse);
    check_file(out / "dq.npy", reference, TensorName::dq);
    check_file(out / "dk.npy", reference, TensorName::dk);
    check_file(out / "dv.npy", reference, TensorName::dv);
    CHECK(read_npy("o", (out / "o.npy").string()).shape() == Shape{2, 4, 20, 24});
    CHECK(read_npy("dk", (out / "dk.npy").string()).shape() == Shape{2, 2, 33, 24});
    const RunRecord record = read_run_record((folder.path() / "run.json").string());
    REQUIRE(record.runs.size() == 1);
    CHECK(record.runs[0].problem == kProblem);
    CHECK(record.runs[0].kernel == kernel);
  }
}

TEST_CASE("without dout only the forward pass is run, features come from the options") {
  const TemporaryFolder folder;
  AttentionProblem problem = kProblem;
  TensorSet inputs = write_inputs(folder.path(), problem);
  problem.causal = false;
  problem.window_left = 7;
  problem.window_right = 2;
  problem.softmax_scale = 0.3;
  problem.dropout = 0.25;
  TensorSet same(problem);
  for (TensorName name : {TensorName::q, TensorName::k, TensorName::v})
    same[name] = inputs[name].as(ElementType::fp32);
  const ProgramResult result = run_program(
      command({"--window", "7,2", "--scale", "0.3", "--dropout", "0.25", "--seed", "5", "--out", "."}),
      folder.path());
  CHECK(result.exit_code == 0);
  CHECK(files_in(folder.path()).count("dq.npy") == 0);
  check_file(folder.path() / "o.npy", Reference(std::move(same), Direction::forward), TensorName::out);
}

TEST_CASE("fp16 files stay fp16, and --dtype rounds, what NumPy lacks is written as float32") {
  const TemporaryFolder folder;
  AttentionProblem half = kProblem;
  half.dtype = ElementType::fp16;
  write_inputs(folder.path(), half);
  CHECK(run_program(command({"--out", "half"}), folder.path()).exit_code == 0);
  CHECK(read_npy("o", (folder.path() / "half/o.npy").string()).dtype() == ElementType::fp16);
  const ProgramResult bf16 = run_program(command({"--out", "bf16", "--dtype", "bf16"}), folder.path());
  CHECK(bf16.exit_code == 0);
  CHECK(bf16.out.find("NumPy has no bf16: the values are written as float32, unchanged") !=
        std::string::npos);
  const Tensor out = read_npy("o", (folder.path() / "bf16/o.npy").string());
  CHECK(out.dtype() == ElementType::fp32);
  const Tensor rounded = out.as(ElementType::bf16);
  for (std::int64_t i = 0; i < out.shape().elements(); ++i) REQUIRE(out.get(i) == rounded.get(i));
}

TEST_CASE("somebody's inputs are never overwritten") {
  const TemporaryFolder folder;
  write_inputs(folder.path(), kProblem);
  const auto bytes_of = [&folder](const char* name) {
    std::ostringstream text;
    text << std::ifstream(folder.path() / name, std::ios::binary).rdbuf();
    return text.str();
  };
  const std::string q = bytes_of("q.npy"), dout = bytes_of("dout.npy");
  CHECK(run_program({"run", "--seqlen", "17", "--out", "."}, folder.path()).exit_code == 0);
  CHECK(fs::exists(folder.path() / "o.npy"));
  const ProgramResult saving =
      run_program({"run", "--seqlen", "17", "--save-inputs", "--out", "."}, folder.path());
  CHECK(saving.exit_code == 2);
  CHECK(saving.err.find("without q.npy") != std::string::npos);
  CHECK(bytes_of("q.npy") == q);
  CHECK(bytes_of("dout.npy") == dout);

  fs::rename(folder.path() / "q.npy", folder.path() / "o.npy");  // an output of somebody else's
  const ProgramResult chained =
      run_program({"run", "--q", "./o.npy", "--k", "k.npy", "--v", "v.npy", "--out", "."}, folder.path());
  CHECK(chained.exit_code == 2);
  CHECK(chained.err.find("q = ./o.npy would be replaced by o.npy") != std::string::npos);
  CHECK(bytes_of("o.npy") == q);
}

TEST_CASE("random inputs are written when asked for, so that the results can be checked elsewhere") {
  const TemporaryFolder folder;
  const ProgramResult result = run_program({"run", "--seqlen", "17", "--heads", "2", "--pass", "fwd+bwd",
                                            "--inputs", "outlier", "--save-inputs", "--out", "r"},
                                           folder.path());
  CHECK(result.exit_code == 0);
  CHECK(files_in(folder.path() / "r") == std::set<std::string>{"q.npy", "k.npy", "v.npy", "dout.npy", "o.npy",
                                                               "lse.npy", "dq.npy", "dk.npy", "dv.npy"});
  // The same attention from the files gives the same bits.
  CHECK(run_program({"run", "--q", "r/q.npy", "--k", "r/k.npy", "--v", "r/v.npy", "--out", "again"},
                    folder.path())
            .exit_code == 0);
  const Tensor a = read_npy("o", (folder.path() / "r/o.npy").string());
  const Tensor b = read_npy("o", (folder.path() / "again/o.npy").string());
  for (std::int64_t i = 0; i < a.shape().elements(); ++i) REQUIRE(a.get(i) == b.get(i));
}

TEST_CASE("a NaN in the inputs is allowed, reaches what depends on it, and is said") {
  const TemporaryFolder folder;
  TensorSet inputs = write_inputs(folder.path(), kProblem);
  Tensor& v = inputs[TensorName::v];
  v.set(v.row_index(1, 0, 3), std::numeric_limits<float>::quiet_NaN());
  const NpyOutput file{"v.npy", &v};
  write_npy_files("out", folder.path().string(), {&file, 1});
  const ProgramResult result = run_program(command({"--out", "r"}), folder.path());
  CHECK(result.exit_code == 0);
  CHECK(result.err == "tilescope: note: v = v.npy holds 1 NaN, which reaches the results\n");
  const Tensor out = read_npy("o", (folder.path() / "r/o.npy").string());
  CHECK(std::isnan(out.get(out.row_index(1, 1, 10))));
  CHECK(std::isfinite(out.get(out.row_index(0, 1, 10))));
}

TEST_CASE("what does not fit together is refused, and no folder is made") {
  const TemporaryFolder folder;
  write_inputs(folder.path(), kProblem);
  AttentionProblem other = kProblem;
  other.head_dim = 16;
  fs::create_directory(folder.path() / "other");
  write_inputs(folder.path() / "other", other);
  AttentionProblem half = kProblem;
  half.dtype = ElementType::fp16;
  fs::create_directory(folder.path() / "half");
  write_inputs(folder.path() / "half", half);
  std::ofstream(folder.path() / "damaged.npy") << "no array";
  std::ofstream(folder.path() / "file") << "not a folder";
  const auto before = files_in(folder.path());
  const std::vector<BadCommand> bads = {
      {{"run", "--q", "q.npy", "--out", "r"}, {"k = ''", "belong together"}},
      {{"run", "--dout", "dout.npy", "--out", "r"}, {"dout = dout.npy", "--q, --k and --v"}},
      {{"run", "--q", "q.npy", "--k", "other/k.npy", "--v", "v.npy", "--out", "r"},
       {"k = other/k.npy", "(2, 2, 33, 24)", "not (2, 2, 33, 16)"}},
      {{"run", "--q", "q.npy", "--k", "k.npy", "--v", "q.npy", "--out", "r"},
       {"v = q.npy", "of k", "(2, 4, 20, 24)"}},
      {{"run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--dout", "k.npy", "--out", "r"},
       {"dout = k.npy", "of q"}},
      {{"run", "--q", "q.npy", "--k", "half/k.npy", "--v", "v.npy", "--out", "r"},
       {"k = half/k.npy", "must hold fp32 like q, not fp16", "--dtype"}},
      {{"run", "--q", "damaged.npy", "--k", "k.npy", "--v", "v.npy", "--out", "r"},
       {"q = damaged.npy", "an .npy file"}},
      {{"run", "--q", "nowhere.npy", "--k", "k.npy", "--v", "v.npy", "--out", "r"},
       {"q = nowhere.npy", "exists"}},
      {command({"--heads", "4", "--out", "r"}), {"heads = 4", "must be left out"}},
      {command({"--preset", "small", "--out", "r"}), {"preset = small", "must be left out"}},
      {command({"--inputs", "normal", "--out", "r"}), {"inputs = normal", "must be left out"}},
      {command({"--pass", "fwd", "--out", "r"}), {"--pass", "--dout"}},
      {command({"--save-inputs", "--out", "r"}), {"--save-inputs", "must be left out"}},
      {command({}), {"out = ''", "folder"}},
      {command({"--out", "file"}), {"out = file", "can be written"}},
      {command({"--out", "file/below"}), {"out = file/below", "can be written"}},
      {command({"--dout", "dout.npy", "--dtype", "fp8e5m2", "--out", "r"}), {"kernel", "fp8e5m2"}},
  };
  for (const BadCommand& bad : bads) {
    const ProgramResult result = run_program(bad.arguments, folder.path());
    CAPTURE(bad.arguments.back());
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out == "");
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    for (const std::string& part : bad.said) {
      CAPTURE(part);
      CHECK(result.err.find(part) != std::string::npos);
    }
    CHECK(files_in(folder.path()) == before);
  }
}

TEST_CASE("a problem that does not fit in memory is refused before anything is written") {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program({"run", "--seqlen", "4000000", "--kernel", "cpu:standard", "--out", "r"}, folder.path());
  CHECK(result.exit_code == 3);
  CHECK(result.err.find("GB of memory") != std::string::npos);
  CHECK(folder.empty());
}

}  // namespace tilescope::testing
