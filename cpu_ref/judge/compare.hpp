// SPDX-License-Identifier: Apache-2.0
// How far a tensor is from what it should hold. Non-finite values are looked for first; every test is stated
// so that a NaN fails it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cpu_ref/numeric/tensor.hpp"

namespace tilescope {

/// Errors of one tensor against expected values. Maximum and mean are over the elements where both are
/// finite.
struct ErrorReport {
  std::int64_t elements = 0;
  std::int64_t non_finite = 0;         // elements that are NaN or infinite and should not be, or the reverse
  std::int64_t first_non_finite = -1;  // index of the first of them
  double max_abs = 0;
  double rmse = 0;
  std::int64_t max_ulp = 0;       // representable values of the tensor's element type between the two
  std::int64_t worst_index = -1;  // of max_abs; the first non-finite element if there is one
  double worst_actual = 0, worst_expected = 0;  // at worst_index

  /// True when all values are finite where they should be and max_abs <= bound. A NaN bound is never met.
  bool within(double bound) const { return non_finite == 0 && max_abs <= bound; }
};

/// Compares `actual` with `expected` (as many values, C order). Infinities must agree after `expected` is
/// rounded to the element type of `actual`, so that an LSE of -inf, or an overflow that is right, is no
/// error; a NaN agrees only with a NaN.
/// @throws BadInput if the number of values differs.
ErrorReport compare(const Tensor& actual, std::span<const double> expected);

/// Compares two tensors of one shape; ULPs are those of `actual`'s element type.
ErrorReport compare(const Tensor& actual, const Tensor& expected);

/// A tensor's values in fp64.
std::vector<double> to_fp64(const Tensor& tensor);
/// The elements of q, k, v or dout, times their descales.
std::vector<double> input_in_fp64(const TensorSet& tensors, TensorName name);

/// `index` of a tensor of this shape as "[batch 0, head 1, row 17, col 3]".
std::string describe_index(const Shape& shape, std::int64_t index);

}  // namespace tilescope
