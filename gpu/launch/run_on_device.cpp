// SPDX-License-Identifier: Apache-2.0
// A direction of a problem on a device: tensors there, all passes, results back.
#include "cpu_ref/primitives/kernel_scale.hpp"
#include "gpu/launch/device_session.hpp"

namespace tilescope {
namespace {

/// LSE from the maxima and sums that flash1 keeps in its place.
void write_lse(TensorSet& tensors) {
  const float scale = KernelScale(tensors.problem()).magnitude;
  Tensor& lse = tensors.allocate(TensorName::lse);
  for (std::int64_t row = 0; row < lse.shape().elements(); ++row) {
    lse.floats()[row] = log_sum_exp(tensors[TensorName::row_max].floats()[row], scale,
                                    tensors[TensorName::row_sum].floats()[row]);
  }
}

}  // namespace

void run_on_device(const Kernel& row, PassLauncher launch, const ProgramOptions& options, Direction direction,
                   TensorSet& tensors, TileObserver* observer) {
  if (const auto refusal = row.refusal(tensors.problem(), direction, options)) {
    throw BadInput(refusal_sentence(row, *refusal, tensors.problem(), direction));
  }
  require_device();
  DeviceSession session(row, launch, tensors.problem(), direction, options, TensorLayout::bhnd, std::nullopt,
                        &tensors.kv_pages());
  using enum TensorName;
  const bool forward = direction == Direction::forward;
  auto inputs = forward ? std::vector<TensorName>{q, k, v}
                        : std::vector<TensorName>{q, k, v, out, lse, row_max, row_sum, probs, dout};
  inputs.insert(inputs.end(), {alibi_slopes, sink});
  session.upload_inputs(tensors, inputs);
  session.upload_descales(tensors);
  for (std::size_t pass = 0; pass < session.programs().size(); ++pass) {
    if (observer) {
      observer->passes.push_back(session.observe(pass));
    } else {
      session.launch(pass);
    }
  }
  session.synchronize();
  session.check_guards();
  auto results = forward ? std::vector<TensorName>{out, lse, row_max, row_sum, probs}
                         : std::vector<TensorName>{dq, dk, dv, dsink};
  if (observer) {  // what passes leave to later ones
    if (forward) results.insert(results.end(), {scores, out_accum});
    if (!forward) results.insert(results.end(), {delta, dq_accum, dk_accum, dv_accum, dprobs, dscores});
  }
  for (TensorName name : results) {
    if (session.holds(name)) session.download(name, tensors.allocate(name, session.extent_of(name).splits));
  }
  session.synchronize();
  if (forward && !session.holds(lse)) write_lse(tensors);
}

}  // namespace tilescope
