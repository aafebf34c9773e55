// SPDX-License-Identifier: Apache-2.0
// FlashAttention-3's error experiment: RMSE of each method over the draws of study `paper-errors`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/model/validation/paper_values.hpp"
#include "analysis/records/run_record.hpp"

namespace tilescope {

struct MethodErrors {
  ElementType dtype = ElementType::fp16;
  std::string method;                     // "cpu:flash2, block scales, incoherent"
  std::vector<double> rmse;               // of the draws
  std::vector<std::uint64_t> seeds = {};  // that drew them
  std::string device = {};                // that computed; empty: a CPU

  double mean() const;
  double deviation() const;  // from draw to draw, n - 1
  /// Whether a number printed with two digits lies between the least and the largest draw.
  bool covers(double printed) const;
};

/// In the order in which the methods first come, devices apart.
std::vector<MethodErrors> method_errors(const std::vector<RunRecord>& records);
/// Null if there is none.
const MethodErrors* find_method(const std::vector<MethodErrors>& errors, ElementType dtype,
                                std::string_view method);

/// What the paper prints of a method, or null.
const PaperError* printed_error(ElementType dtype, std::string_view method);

/// Of each draw that both have, one method's error over another's.
MethodErrors error_ratios(const MethodErrors& of, const MethodErrors& over);

}  // namespace tilescope
