// SPDX-License-Identifier: Apache-2.0
#include "profiler/benchmarks/attention_benchmarks.hpp"

#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <thread>

#include "cpu_ref/numeric/random_inputs.hpp"
#include "profiler/benchmarks/blas_library.hpp"
#include "profiler/benchmarks/fma_rate.hpp"

namespace tilescope {
namespace {

using Clock = std::chrono::steady_clock;

/// Something to time: run() once is one iteration.
class Timed {
 public:
  explicit Timed(std::string name) : name_(std::move(name)) {}
  virtual ~Timed() = default;
  virtual void run() = 0;

  const std::string& name() const { return name_; }
  /// Runs once, to touch all memory, and from how long that took chooses the iterations of a sample.
  void warm_up(double sample_seconds) {
    run();
    const Clock::time_point start = Clock::now();
    run();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    iterations_ = std::max<std::int64_t>(1, std::llround(sample_seconds / std::max(seconds, 1e-9)));
  }
  std::int64_t iterations() const { return iterations_; }

 private:
  std::string name_;
  std::int64_t iterations_ = 1;
};

class TimedKernel : public Timed {
 public:
  explicit TimedKernel(const BenchmarkCase& c)
      : Timed(std::string(c.kernel->name)), case_(c), tensors_(c.problem) {
    omp_set_num_threads(case_.threads);
    fill_random_inputs(tensors_, case_.direction);
    if (case_.direction == Direction::backward) {
      case_.kernel->run(case_.options, Direction::forward, tensors_, nullptr);
    }
  }
  void run() override {
    omp_set_num_threads(case_.threads);
    case_.kernel->run(case_.options, case_.direction, tensors_, nullptr);
  }

 private:
  BenchmarkCase case_;
  TensorSet tensors_;
};

class TimedProduct : public Timed {
 public:
  TimedProduct(const BlasLibrary& library, int side, int threads)
      : Timed("matrix product"),
        library_(library),
        side_(side),
        threads_(threads),
        a_(elements(), 0.5f),
        b_(elements(), 0.25f),
        c_(elements()) {}
  void run() override { library_.square_product(side_, a_.data(), b_.data(), c_.data(), threads_); }

 private:
  std::size_t elements() const { return static_cast<std::size_t>(side_) * static_cast<std::size_t>(side_); }
  const BlasLibrary& library_;
  int side_, threads_;
  std::vector<float> a_, b_, c_;
};

/// Takes the samples from Google Benchmark and prints nothing.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.iterations == 0) continue;
      samples_s[run.run_name.function_name].push_back(run.real_accumulated_time /
                                                      static_cast<double>(run.iterations));
    }
  }
  std::map<std::string, std::vector<double>> samples_s;  // by the registered name
};

/// One sample. The threads of another library may still spin for work when it starts: it lets them go to
/// sleep and wakes its own.
void sample(benchmark::State& state, Timed& timed, const BenchmarkSettings& settings,
            std::exception_ptr& failure) {
  try {
    if (settings.on_sample) settings.on_sample(timed.name());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    timed.run();
    for (auto _ : state) timed.run();
  } catch (...) {
    failure = std::current_exception();
    state.SkipWithError("failed");
  }
}

/// In this order samples of one benchmark lie far apart in time.
void initialise_library() {
  static const bool done = [] {
    std::string name = "tilescope", interleave = "--benchmark_enable_random_interleaving=true";
    char* arguments[] = {name.data(), interleave.data(), nullptr};
    int count = 2;
    benchmark::Initialize(&count, arguments);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

BenchmarkResults run_benchmarks(const std::vector<BenchmarkCase>& cases, const BenchmarkSettings& settings) {
  const int usual_threads = omp_get_max_threads();
  BenchmarkResults results;
  const std::optional<BlasLibrary> blas = BlasLibrary::open();
  std::vector<std::unique_ptr<Timed>> all;
  for (const BenchmarkCase& c : cases) all.push_back(std::make_unique<TimedKernel>(c));
  if (blas) {
    results.product_library = blas->description();
    for (const BenchmarkCase& c : cases) {
      const auto same = [&](const ProductTimes& times) { return times.threads == c.threads; };
      if (std::any_of(results.products.begin(), results.products.end(), same)) continue;
      const std::int64_t side = settings.product_side;
      results.products.push_back({c.threads, 2 * side * side * side, {}, measured_fma_rate(c.threads)});
      all.push_back(std::make_unique<TimedProduct>(*blas, settings.product_side, c.threads));
    }
  }

  std::exception_ptr failure;
  initialise_library();
  for (std::size_t i = 0; i < all.size(); ++i) {
    Timed& timed = *all[i];
    timed.warm_up(settings.sample_seconds);
    benchmark::RegisterBenchmark(
        std::to_string(i).c_str(),
        [&timed, &settings, &failure](benchmark::State& state) { sample(state, timed, settings, failure); })
        ->Iterations(timed.iterations())
        ->Repetitions(settings.repetitions)
        ->UseRealTime();
  }
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  benchmark::ClearRegisteredBenchmarks();
  omp_set_num_threads(usual_threads);
  if (failure) std::rethrow_exception(failure);

  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<double>& samples = collector.samples_s[std::to_string(i)];
    if (i < cases.size()) {
      results.samples_s.push_back(std::move(samples));
    } else {
      results.products[i - cases.size()].samples_s = std::move(samples);
    }
  }
  return results;
}

}  // namespace tilescope
