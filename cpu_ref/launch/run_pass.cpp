// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/launch/run_pass.hpp"

#include <algorithm>
#include <string>

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
  const auto reduces = [](const Operand& operand) {
    return operand.kind == AccessKind::reduce || operand.kind == AccessKind::store_then_reduce;
  };
  const bool any = std::any_of(program.phases.begin(), program.phases.end(), [&](const auto& phase) {
    return std::any_of(phase.begin(), phase.end(), reduces);
  });
  if (!any) return;
  const AttentionProblem& problem = program.problem;
  const VisibleBand band = problem.band();
  const bool q_axis = program.axis == Axis::q;
  const std::int64_t owned = program.query_splits() > 1 ? problem.heads_kv * program.num_blocks() : 0;
  turns_.emplace(problem.batch * (q_axis ? problem.heads_kv * num_n_blocks(band, program.tile)
                                         : problem.heads * num_m_blocks(band, program.tile) + owned));
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
