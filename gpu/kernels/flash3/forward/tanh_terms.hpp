// SPDX-License-Identifier: Apache-2.0
// tanh by a polynomial, for a soft cap of scores that lie well below it: four multiply-adds, where the
// special function unit, which exponentials keep busy, would take two more results a score. Plain C++.
#pragma once

namespace tilescope {

/// tanh(x) = x (t0 + t1 x^2 + t2 x^4 + t3 x^6) for |x| up to kFlash3TanhTermsMost, to a relative 5.5e-7: the
/// polynomial of this degree whose largest relative error is least (Remez).
inline constexpr float kFlash3TanhTermsMost = 0.5f;
inline constexpr float kFlash3TanhTerms[4] = {0.999999456f, -0.333263179f, 0.131902966f, -0.0444022261f};

}  // namespace tilescope
