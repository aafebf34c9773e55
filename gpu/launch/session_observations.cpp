// SPDX-License-Identifier: Apache-2.0
// What a session sees of a pass beside its results: the tiles that it visits, the times of its steps, the
// clocks of the SMs meanwhile.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "gpu/launch/device_session.hpp"
#include "gpu/launch/device_tables.hpp"
#include "gpu/launch/sm_clocks.hpp"

namespace tilescope {
namespace {

/// The most tiles that one CTA visits.
std::int64_t most_steps(const TileProgram& program) {
  std::int64_t most = 0;
  program.problem.for_each_length([&](std::int64_t, std::int64_t entry) {
    std::int64_t steps = 0;
    for (int block = 0; block < program.num_blocks(); ++block) {
      const std::int64_t tiles = program.inner_tiles(static_cast<int>(entry), block).count();
      steps = program.whole_head ? steps + tiles : std::max(steps, tiles);
    }
    most = std::max(most, steps);
  });
  return most * program.heads_per_cta();
}

/// Parts of a tile's keys that may have maxima of their own: where a tile has 64 rows, two warpgroups may
/// share its keys.
constexpr int most_key_parts(int block_m) { return block_m <= 64 ? 2 : 1; }

/// The maxima of a state, as TileState has them: parts of keys of which nothing is told are left out.
std::vector<float> told_maxima(const float* maxima, int block_m) {
  int parts = 0;
  for (int i = 0; i < most_key_parts(block_m) * block_m; ++i) {
    if (!std::isnan(maxima[i])) parts = i / block_m + 1;
  }
  return {maxima, maxima + parts * block_m};
}

}  // namespace

PassLog DeviceSession::observe(std::size_t index) {
  const TileProgram& program = programs_[index];
  PassLog log{.pass = program.name,
              .ctas = std::vector<CtaLog>(static_cast<std::size_t>(program.num_ctas())),
              .has_accesses = false};
  const std::int64_t capacity = most_steps(program);
  if (program.phases.empty() || capacity == 0) {
    launch(index);
    return log;
  }
  const std::int64_t ctas = program.num_ctas();
  const int block_m = program.tile.block_m;
  KernelArguments observed = arguments(index);
  DeviceTileLog& device_log = observed.log;
  device_log.capacity = static_cast<int>(capacity);
  if (maxima_lag_ && program.name == PassName::forward) device_log.rows = most_key_parts(block_m) * block_m;
  const auto entries = static_cast<std::size_t>(ctas * capacity);
  std::size_t numbers = entries * static_cast<std::size_t>(device_log.rows);  // of maxima
  numbers += numbers % 2;                                                     // states hold fp64
  std::vector<float> words(numbers + entries * sizeof(DeviceTileState) / sizeof(float));
  std::fill(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(numbers),
            std::numeric_limits<float>::quiet_NaN());
  DeviceBuffer log_buffer = uploaded("tile log", words, stream_.get());
  DeviceBuffer visited("tile log counters", ctas * static_cast<std::int64_t>(sizeof(int)));
  visited.zero(stream_.get());
  device_log.states = reinterpret_cast<DeviceTileState*>(static_cast<float*>(log_buffer.data()) + numbers);
  device_log.visited = static_cast<int*>(visited.data());
  launch_(program, observed, stream_.get());
  check_cuda(cudaGetLastError(), "launching " + kernel_name_ + " " + std::string(to_string(program.name)));
  synchronize();
  log_buffer.check_guards();
  std::vector<int> counts(static_cast<std::size_t>(ctas));
  check_cuda(cudaMemcpy(counts.data(), visited.data(), counts.size() * sizeof(int), cudaMemcpyDeviceToHost),
             "downloading the tile log");
  check_cuda(
      cudaMemcpy(words.data(), log_buffer.data(), words.size() * sizeof(float), cudaMemcpyDeviceToHost),
      "downloading the tile log");
  for (std::size_t cta = 0; cta < counts.size(); ++cta) {
    for (int i = 0; i < counts[cta]; ++i) {
      const std::size_t entry = cta * static_cast<std::size_t>(capacity) + static_cast<std::size_t>(i);
      DeviceTileState s;
      std::memcpy(&s, &words[numbers + entry * sizeof s / sizeof(float)], sizeof s);
      TileState state{program.name, s.batch, s.head,   s.m_block, s.n_block, s.scores,   s.row_max,
                      s.row_sum,    s.probs, s.dprobs, s.dscores, s.accum,   s.left_out, {}};
      if (device_log.rows > 0) {
        const std::size_t behind = (entry + 1) * static_cast<std::size_t>(device_log.rows);
        state.maxima = told_maxima(&words[numbers - behind], block_m);
      }
      log.ctas[cta].states.push_back(std::move(state));
    }
  }
  return log;
}

bool DeviceSession::has_step_clock() {
#ifdef TILESCOPE_STEP_CLOCK
  return true;
#else
  return false;
#endif
}

StepTimes DeviceSession::time_steps(std::size_t index, int most_notes) {
#ifdef TILESCOPE_STEP_CLOCK
  const TileProgram& program = programs_[index];
  const auto ctas = static_cast<std::size_t>(program.num_ctas());
  int log2_every = 0;
  while (ceil_div(static_cast<int>(most_steps(program)), 1 << log2_every) > most_notes) ++log2_every;
  const auto stride = static_cast<std::size_t>(1 + most_notes);
  std::vector<std::uint32_t> notes(ctas * stride);
  const auto bytes = static_cast<std::int64_t>(notes.size() * sizeof(notes[0]));
  DeviceBuffer buffer("step notes", bytes);
  buffer.zero(stream());
  KernelArguments timed = arguments(index);
  timed.clock = {static_cast<std::uint32_t*>(buffer.data()), static_cast<int>(stride), log2_every,
                 (1 << log2_every) - 1};
  launch_(program, timed, stream());
  check_cuda(cudaGetLastError(), "launching " + kernel_name_ + " " + std::string(to_string(program.name)));
  synchronize();
  buffer.check_guards();
  check_cuda(cudaMemcpy(notes.data(), buffer.data(), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost),
             "downloading the step notes");
  StepTimes times{1 << log2_every, {}};
  for (auto row = notes.begin(); row != notes.end(); row += static_cast<std::ptrdiff_t>(stride)) {
    const auto end = std::find(row + 1, row + static_cast<std::ptrdiff_t>(stride), 0u);
    times.ctas.push_back({static_cast<int>(*row), {row + 1, end}});
  }
  return times;
#else
  static_cast<void>(index), static_cast<void>(most_notes);
  throw MachineLacks(
      "the kernels of this build have no step clock: configure one with "
      "-D TILESCOPE_STEP_CLOCK=ON");
#endif
}

namespace {

/// Moments of all SMs before and after something.
class SmClockNotes {
 public:
  explicit SmClockNotes(cudaStream_t stream) { buffer_.zero(stream); }
  void note_before(cudaStream_t stream) { note_moments(moments(), stream); }
  void note_after(cudaStream_t stream) { note_moments(moments() + 1, stream); }
  /// What each SM's clock counted from before to after, by the SM's id. Waits for nothing.
  std::map<int, SmMoment> between() {
    std::vector<SmMoments> noted(2);
    check_cuda(cudaMemcpy(noted.data(), buffer_.data(), kBytes, cudaMemcpyDeviceToHost),
               "downloading the clocks of SMs");
    std::map<int, SmMoment> between;
    for (int sm = 0; sm < kMostSmIds; ++sm) {
      const SmMoment from = noted[0].of_sm[sm], to = noted[1].of_sm[sm];
      if (from.nanoseconds == 0 || to.nanoseconds == 0) continue;  // no SM has this id
      between[sm] = {to.cycles - from.cycles, to.nanoseconds - from.nanoseconds};
    }
    return between;
  }

 private:
  static constexpr std::int64_t kBytes = 2 * sizeof(SmMoments);
  SmMoments* moments() { return static_cast<SmMoments*>(buffer_.data()); }
  DeviceBuffer buffer_{"clocks of SMs", kBytes};
};

}  // namespace

std::vector<double> DeviceSession::clock_rates(std::size_t index) {
  SmClockNotes notes(stream());
  notes.note_before(stream());
  launch(index, stream());
  notes.note_after(stream());
  synchronize();
  std::vector<double> rates;
  for (const auto& [sm, passed] : notes.between()) {
    rates.push_back(static_cast<double>(passed.cycles) / static_cast<double>(passed.nanoseconds));
  }
  return rates;
}

std::map<int, double> DeviceSession::busy_cycles(std::size_t index) {
  using namespace std::chrono_literals;
  SmClockNotes notes(stream());
  const Stream beside;
  synchronize();
  notes.note_before(stream());
  launch(index, stream());
  std::this_thread::sleep_for(1ms);  // by then the pass has all SMs
  if (cudaStreamQuery(stream()) == cudaSuccess) return {};
  notes.note_after(beside.get());
  beside.synchronize("noting the clocks of SMs");
  synchronize();
  std::map<int, double> cycles;
  for (const auto& [sm, passed] : notes.between()) cycles[sm] = static_cast<double>(passed.cycles);
  return cycles;
}

}  // namespace tilescope
