// SPDX-License-Identifier: Apache-2.0
// The .npy files that `tilescope run` reads: one a tensor, or queries, keys and values in one, in the orders
// in which models and kernels keep them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/records/files/npy_file.hpp"

namespace tilescope::cli {

struct InputPaths {
  std::optional<std::string> q, k, v, qkv, dout;
  bool v_transposed = false;  // (B, Hkv, D, Nk)
};

/// Where element (b, h, n, d) of a tensor stands in its file's array. [elements]
struct StoredOrder {
  std::int64_t first = 0, batch = 0, head = 0, row = 0, col = 0;
  bool operator==(const StoredOrder&) const = default;
};

struct InputFile {
  TensorName tensor;
  std::string path;
  NpyAxes axes;
  NpyInfo info;  // with the shape (B, H, N, D)
  StoredOrder order;
};

/// The files that were named, with their headers read: q, k, v, and dout where it is given; none where no
/// file is. @throws BadInput
std::vector<InputFile> input_files(const InputPaths& paths);

/// The problem whose tensors the files hold. @throws BadInput
AttentionProblem problem_of_files(const std::vector<InputFile>& files, const ProblemOptions& options);

/// Reads them, (B, H, N, D) and stored as the problem's type and descales have it.
void load_inputs(const CommandContext& context, const std::vector<InputFile>& files, TensorSet& tensors);

}  // namespace tilescope::cli
