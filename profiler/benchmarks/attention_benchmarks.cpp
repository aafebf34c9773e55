// SPDX-License-Identifier: Apache-2.0
#include "profiler/benchmarks/attention_benchmarks.hpp"

#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
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
  /// Runs once, to touch all memory, and from how long that took chooses the iterations of a sample; it does
  /// so before its first samples.
  void warm_up(double sample_seconds) {
    if (iterations_ > 0) return;
    run();
    const Clock::time_point start = Clock::now();
    run();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    iterations_ = std::max<std::int64_t>(1, std::llround(sample_seconds / std::max(seconds, 1e-9)));
  }
  std::int64_t iterations() const { return iterations_; }

 private:
  std::string name_;
  std::int64_t iterations_ = 0;
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

/// One sample, which is none once something failed or was stopped: Google Benchmark takes its iterations all
/// the same. The threads of another library may still spin for work when it starts: it lets them go to sleep
/// and wakes its own.
void sample(benchmark::State& state, Timed& timed, const BenchmarkSettings& settings,
            std::exception_ptr& failure) {
  if (settings.on_sample) settings.on_sample(timed.name());
  bool goes_on = !failure && !settings.stopped();
  const auto run = [&] {
    try {
      if (goes_on) timed.run();
    } catch (...) {
      failure = std::current_exception();
      goes_on = false;
    }
  };
  if (goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  run();
  for (auto _ : state) run();
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

/// The threads that a kernel may use are set as they were when this ends.
struct UsualThreads {
  int threads = omp_get_max_threads();
  ~UsualThreads() { omp_set_num_threads(threads); }
};

/// Those that are timed in turn, and how often each: their samples, or nothing where they were stopped.
using Repeated = std::vector<std::pair<Timed*, int>>;
std::optional<std::vector<std::vector<double>>> time_interleaved(const Repeated& all,
                                                                 const BenchmarkSettings& settings) {
  for (const auto& [timed, repetitions] : all) {
    if (settings.stopped()) return std::nullopt;
    timed->warm_up(settings.sample_seconds);
  }
  std::exception_ptr failure;
  for (std::size_t i = 0; i < all.size(); ++i) {
    Timed& timed = *all[i].first;
    benchmark::RegisterBenchmark(
        std::to_string(i).c_str(),
        [&timed, &settings, &failure](benchmark::State& state) { sample(state, timed, settings, failure); })
        ->Iterations(timed.iterations())
        ->Repetitions(all[i].second)
        ->UseRealTime();
  }
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  benchmark::ClearRegisteredBenchmarks();
  if (failure) std::rethrow_exception(failure);
  if (settings.stopped()) return std::nullopt;
  std::vector<std::vector<double>> samples_s;
  for (std::size_t i = 0; i < all.size(); ++i) {
    samples_s.push_back(std::move(collector.samples_s[std::to_string(i)]));
  }
  return samples_s;
}

/// The products of each thread count that a case has, without samples yet.
std::vector<ProductTimes> products_beside(const std::vector<BenchmarkCase>& cases, std::int64_t side) {
  std::vector<ProductTimes> products;
  for (const BenchmarkCase& c : cases) {
    const auto same = [&](const ProductTimes& times) { return times.threads == c.threads; };
    if (std::ranges::any_of(products, same)) continue;
    products.push_back({c.threads, 2 * side * side * side, {}, measured_fma_rate(c.threads)});
  }
  return products;
}

}  // namespace

BenchmarkResults run_benchmarks(const std::vector<BenchmarkCase>& cases, const BenchmarkSettings& settings) {
  const UsualThreads usual;
  BenchmarkResults results;
  const std::optional<BlasLibrary> blas = BlasLibrary::open();
  std::vector<std::unique_ptr<Timed>> products;
  if (blas) {
    results.product_library = blas->description();
    results.products = products_beside(cases, settings.product_side);
    for (const ProductTimes& times : results.products) {
      products.push_back(std::make_unique<TimedProduct>(*blas, settings.product_side, times.threads));
    }
  }
  initialise_library();
  const auto groups = groups_of(cases);
  const auto rounded_up = [&](std::size_t group) {  // samples of a product before that group
    return (group * static_cast<std::size_t>(settings.repetitions) + groups.size() - 1) / groups.size();
  };
  for (std::size_t group = 0; group < groups.size(); ++group) {
    std::vector<std::unique_ptr<Timed>> kernels;
    Repeated all;
    for (const BenchmarkCase& c : groups[group]) {
      kernels.push_back(std::make_unique<TimedKernel>(c));
      all.emplace_back(kernels.back().get(), settings.repetitions);
    }
    const auto of_product = static_cast<int>(rounded_up(group + 1) - rounded_up(group));
    for (const auto& product : products) {
      if (of_product > 0) all.emplace_back(product.get(), of_product);
    }
    auto samples_s = time_interleaved(all, settings);
    if (!samples_s) break;
    for (std::size_t i = kernels.size(); i < samples_s->size(); ++i) {
      std::vector<double>& of_all = results.products[i - kernels.size()].samples_s;
      of_all.insert(of_all.end(), (*samples_s)[i].begin(), (*samples_s)[i].end());
    }
    samples_s->resize(kernels.size());
    std::move(samples_s->begin(), samples_s->end(), std::back_inserter(results.samples_s));
  }
  return results;
}

}  // namespace tilescope
