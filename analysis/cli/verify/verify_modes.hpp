// SPDX-License-Identifier: Apache-2.0
// What `verify` does in place of its sweep; each returns the exit code.
#pragma once

#include "analysis/cli/command.hpp"
#include "analysis/cli/verify/verify_options.hpp"

namespace tilescope::cli {

/// --rows: one problem, on the kernels named or on all that take it here; without --pass in each direction
/// that a kernel has.
int verify_rows(const CommandContext& context, const VerifyOptions& options);
/// --gradients: one problem, or a few small ones, on the kernels named or on all that take them here.
int verify_gradients(const CommandContext& context, const VerifyOptions& options);
/// --gpus: ranks that are threads here, whose launches run a CPU kernel, or GPUs.
int verify_ranks(const CommandContext& context, const VerifyOptions& options);

}  // namespace tilescope::cli
