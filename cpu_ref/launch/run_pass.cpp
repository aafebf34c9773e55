// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/launch/run_pass.hpp"

#include "common/log.hpp"
#include "cpu_ref/launch/launch_text.hpp"

namespace tilescope::detail {

CtaDispenser::CtaDispenser(const TileProgram& program, TensorSet& tensors, TileObserver* observer)
    : program_(&program), tensors_(&tensors) {
  log_text(LogLevel::trace, [&] { return "launch on the CPU: " + launch_text(program); });
  if (observer != nullptr) {
    log_ = &observer->passes.emplace_back();
    log_->pass = program.name;
    log_->ctas.resize(static_cast<std::size_t>(program.num_ctas()));
  }
  if (const std::int64_t queues = Cta::num_queues(program); queues > 0) turns_.emplace(queues);
}

bool CtaDispenser::next(std::optional<Cta>& cta) {
  cta.reset();  // its unused tickets go on before the next CTA is taken
  const std::lock_guard<std::mutex> lock(mutex_);
  if (issued_ == program_->num_ctas()) return false;
  const std::int64_t index = issued_++;
  cta.emplace(*program_, *tensors_, index,
              log_ == nullptr ? nullptr : &log_->ctas[static_cast<std::size_t>(index)]);
  if (turns_) cta->draw_tickets(*turns_);
  return true;
}

}  // namespace tilescope::detail
