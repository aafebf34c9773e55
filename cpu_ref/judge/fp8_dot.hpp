// SPDX-License-Identifier: Apache-2.0
// A dot product of fp8 numbers as Hopper's tensor cores sum it, by the rule that fp8_matmul.hpp states, one
// number after the other and without its code: what scores are right where a kernel sums them so.
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

double fp8_dot(ElementType dtype, const double* a, const double* b, std::int64_t count, double sum = 0.0);

}  // namespace tilescope
