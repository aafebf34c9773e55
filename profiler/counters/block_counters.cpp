// SPDX-License-Identifier: Apache-2.0
#include "profiler/counters/block_counters.hpp"

#include "profiler/counters/bracketed_counters.hpp"

namespace tilescope {

struct BlockCounters::State {
  State(const std::string& metrics, int device_index, L2State how)
      : device(device_index),
        cupti(CuptiLibrary::load()),
        counters_of(CounterDevice::probe(*cupti, device.get(), device_index)),
        l2(how),
        choice(choose_metrics(metrics, MetricCatalogue(counters_of.chip))),
        session(cupti, device.get(), counters_of, choice.counters, RangeMode::pushed, kRangesOfBracket),
        sweep(device.driver()) {
    if (session.passes() > 1) {
      throw BadInput("metrics", metrics,
                     "must be what one pass can count, where nothing is repeated; these take " +
                         std::to_string(session.passes()) + " passes, and the set traffic takes one");
    }
    device.leave();
  }

  DeviceContext device;
  std::shared_ptr<const CuptiLibrary> cupti;
  CounterDevice counters_of;
  L2State l2;
  MetricChoice choice;
  CounterSession session;
  EvictionSweep sweep;
};

BlockCounters::BlockCounters(const std::string& metrics, int device_index, L2State l2)
    : state_(std::make_unique<State>(metrics, device_index, l2)) {}
BlockCounters::~BlockCounters() {
  const CurrentContext current(state_->device.driver(), state_->device.get());
  state_.reset();
}

void BlockCounters::open() {
  const CurrentContext current(state_->device.driver(), state_->device.get());
  const DriverLibrary& driver = *state_->device.driver();
  TILESCOPE_DRIVER_CALL(driver, cuCtxSynchronize);
  state_->session.start();
  if (state_->l2 == L2State::warm) {
    state_->session.push(range_of_work(0));
  } else {
    open_bracket(state_->session, driver, state_->sweep, 0);
  }
}

KernelMeasurement BlockCounters::close(const std::string& name) {
  const CurrentContext current(state_->device.driver(), state_->device.get());
  close_bracket(state_->session, *state_->device.driver(), state_->sweep, 0);
  if (!state_->session.stop()) throw CuptiError(0, "CUPTI announced one pass and asked for another");
  KernelMeasurement block;
  block.name = name;
  if (!read_bracket(state_->session.collect(), state_->session.counters(), state_->choice, 0, block,
                    state_->l2)) {
    throw CuptiError(0, "CUPTI returned no counters for " + name);
  }
  return block;
}

std::string BlockCounters::library() const { return state_->cupti->path(); }

CollectionFacts BlockCounters::facts() const {
  return {.device = state_->device.name(),
          .chip = state_->counters_of.chip,
          .driver = state_->device.driver_version(),
          .replay = "none",
          .passes = 1,
          .l2 = std::string(to_string(state_->l2))};
}

}  // namespace tilescope
