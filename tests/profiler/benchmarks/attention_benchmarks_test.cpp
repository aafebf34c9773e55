// SPDX-License-Identifier: Apache-2.0
#include "profiler/benchmarks/attention_benchmarks.hpp"

#include <doctest/doctest.h>
#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "profiler/benchmarks/blas_library.hpp"
#include "profiler/benchmarks/fma_rate.hpp"

namespace tilescope {
namespace {

const BenchmarkSettings kShort{
    .repetitions = 3, .sample_seconds = 0.001, .product_side = 64, .on_sample = {}};

TEST_CASE("each case and each thread count's product has its samples, all positive") {
  const AttentionProblem problem{.heads = 2, .seqlen_q = 40, .seqlen_k = 40, .head_dim = 16};
  std::vector<BenchmarkCase> cases;
  for (const Kernel& kernel : cpu_kernels()) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const int threads : {1, 2}) {
        cases.push_back({&kernel, problem, direction, kernel.default_options(problem), threads});
      }
    }
  }
  const int threads_before = omp_get_max_threads();
  int announced = 0;
  BenchmarkSettings settings = kShort;
  settings.on_sample = [&](const std::string& name) {
    CHECK_FALSE(name.empty());
    ++announced;
  };
  const BenchmarkResults results = run_benchmarks(cases, settings);
  CHECK(omp_get_max_threads() == threads_before);
  REQUIRE(results.samples_s.size() == cases.size());
  CHECK(results.products.size() == (results.product_library.empty() ? 0 : 2));
  CHECK(announced == static_cast<int>(3 * (cases.size() + results.products.size())));
  const auto check_samples = [](const std::vector<double>& samples) {
    CHECK(samples.size() == 3);
    for (const double sample : samples) CHECK((sample > 0 && sample < 60));
  };
  for (const std::vector<double>& samples : results.samples_s) check_samples(samples);
  for (const ProductTimes& product : results.products) {
    check_samples(product.samples_s);
    CHECK(product.flops == 2 * 64 * 64 * 64);
  }
}

TEST_CASE("what is stopped keeps the groups before, each whole, and the products beside them") {
  const Kernel& kernel = cpu_kernels().front();
  std::vector<BenchmarkCase> cases;
  for (const std::int64_t length : {8, 16, 24}) {
    const AttentionProblem problem{.seqlen_q = length, .seqlen_k = length, .head_dim = 8};
    for (const int threads : {1, 2}) {
      cases.push_back({&kernel, problem, Direction::forward, kernel.default_options(problem), threads});
    }
  }
  int samples = 0;
  BenchmarkSettings settings = kShort;
  settings.on_sample = [&](const std::string&) { ++samples; };
  const std::size_t products = run_benchmarks(cases, settings).products.size();
  CHECK(samples == static_cast<int>(3 * (cases.size() + products)));
  const int in_a_group = samples / 3;
  for (int whole = 0; whole < 3; ++whole) {
    samples = 0;
    settings.stopped = [&] { return samples == (whole + 1) * in_a_group; };  // before a group's last sample
    const BenchmarkResults results = run_benchmarks(cases, settings);
    CHECK(results.samples_s.size() == static_cast<std::size_t>(2 * whole));
    for (const std::vector<double>& of_case : results.samples_s) CHECK(of_case.size() == 3);
    for (const ProductTimes& product : results.products)
      CHECK(product.samples_s.size() == static_cast<std::size_t>(whole));
  }
}

TEST_CASE("what a kernel throws comes out, and the next run is none the worse") {
  AttentionProblem problem{.seqlen_q = 8, .seqlen_k = 8, .head_dim = 8};
  const Kernel& kernel = cpu_kernels().front();
  ProgramOptions bad = kernel.default_options(problem);
  bad[PassName::forward].tile = {0, 0};
  CHECK_THROWS_AS(run_benchmarks({{&kernel, problem, Direction::forward, bad, 1}}, kShort), BadInput);
  const ProgramOptions good = kernel.default_options(problem);
  CHECK(run_benchmarks({{&kernel, problem, Direction::forward, good, 1}}, kShort).samples_s.size() == 1);
}

TEST_CASE("the product is a product") {
  const auto blas = BlasLibrary::open();
  if (!blas) return;  // nothing to compare with on this machine
  CHECK(blas->description().starts_with("OpenBLAS"));
  const std::vector<float> a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
  std::vector<float> c(4, NAN);
  blas->square_product(2, a.data(), b.data(), c.data(), 1);
  CHECK(c == std::vector<float>{19, 22, 43, 50});
}

TEST_CASE("an OpenBLAS that takes the CPU for an old one is told better") {
  if (!BlasLibrary::open() || fma_lanes() == 1) return;
  const auto told = BlasLibrary::open("Prescott");
  REQUIRE(told.has_value());
  CAPTURE(told->description());
  CHECK(told->description().ends_with(fma_lanes() == 16 ? " SkylakeX" : " Haswell"));
  unsetenv("OPENBLAS_CORETYPE");
}

TEST_CASE("the rate of multiply-adds is one that a CPU can have") {
  const double rate = measured_fma_rate(1);
  if (fma_lanes() == 1) return;
  CHECK(rate > 1e8);
  CHECK(rate < 1e12);
}

}  // namespace
}  // namespace tilescope
