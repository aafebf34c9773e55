// SPDX-License-Identifier: Apache-2.0
// Compiled once for each instruction set, chosen at run time; the bits are those of philox.hpp on all of
// them.
#include "cpu_ref/numeric/dropout_factors.hpp"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_ref/numeric/dropout_factors.cpp"
#include <hwy/foreach_target.h>
// Highway asks for this order.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tilescope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::CappedTag<std::uint32_t, kTileAlign>;
using Floats = hn::RebindToFloat<Words>;
using Word = hn::Vec<Words>;

/// Low and high halves of the products of all lanes with `factor`.
HWY_INLINE void multiply_wide(Word x, Word factor, Word& low, Word& high) {
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t product = std::uint64_t{hn::GetLane(x)} * hn::GetLane(factor);
  high = hn::Set(Words(), static_cast<std::uint32_t>(product >> 32));
  low = hn::Set(Words(), static_cast<std::uint32_t>(product));
#else
  const Words d;
  const hn::Repartition<std::uint64_t, Words> wide;
  const auto even = hn::MulEven(x, factor);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), factor);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
#endif
}

/// philox4x32(seed, {quad, query, batch_head, 0}) of each lane, as dropout factors of its four keys.
HWY_INLINE void factors_of(const DropoutMask& dropout, Word quad, Word query, std::uint32_t batch_head,
                           hn::Vec<Floats> (&factors)[4]) {
  const Words d;
  Word x[4] = {quad, query, hn::Set(d, batch_head), hn::Zero(d)};
  auto key0 = static_cast<std::uint32_t>(dropout.seed);
  auto key1 = static_cast<std::uint32_t>(dropout.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    Word low0, high0, low1, high1;
    multiply_wide(x[0], hn::Set(d, 0xD2511F53u), low0, high0);
    multiply_wide(x[2], hn::Set(d, 0xCD9E8D57u), low1, high1);
    x[0] = hn::Xor(hn::Xor(high1, x[1]), hn::Set(d, key0));
    x[2] = hn::Xor(hn::Xor(high0, x[3]), hn::Set(d, key1));
    x[1] = low1;
    x[3] = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  const auto keep = hn::BitCast(d, hn::Set(Floats(), dropout.keep_scale));
  for (int i = 0; i < 4; ++i) {
    const auto dropped = hn::Lt(x[i], hn::Set(d, dropout.threshold));
    factors[i] = hn::BitCast(Floats(), hn::IfThenZeroElse(dropped, keep));
  }
}

void Factors(const DropoutMask& dropout, const ScoreRegion& region, Queries along, float* out,
             std::ptrdiff_t stride) {
  const Words d;
  const Floats df;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto head = static_cast<std::uint32_t>(region.batch_head);
  const int end_key = region.first_key + region.keys;
  hn::Vec<Floats> factors[4];
  if (along == Queries::columns) {
    for (int quad = region.first_key / 4; quad * 4 < end_key; ++quad) {
      for (int i = 0; i < region.queries; i += lanes) {
        const auto query = hn::Iota(d, static_cast<std::uint32_t>(region.first_query + i));
        factors_of(dropout, hn::Set(d, static_cast<std::uint32_t>(quad)), query, head, factors);
        for (int k = 0; k < 4; ++k) {
          const int key = quad * 4 + k - region.first_key;
          if (0 <= key && key < region.keys) hn::StoreU(factors[k], df, out + key * stride + i);
        }
      }
    }
    return;
  }
  for (int i = 0; i < region.queries; ++i) {
    const auto query = hn::Set(d, static_cast<std::uint32_t>(region.first_query + i));
    for (int quad = region.first_key / 4; quad * 4 < end_key; quad += lanes) {
      float keys[4 * kTileAlign];
      factors_of(dropout, hn::Iota(d, static_cast<std::uint32_t>(quad)), query, head, factors);
      hn::StoreInterleaved4(factors[0], factors[1], factors[2], factors[3], df, keys);
      const int begin = std::max(region.first_key, quad * 4), end = std::min(end_key, (quad + lanes) * 4);
      std::memcpy(out + i * stride + (begin - region.first_key), keys + (begin - quad * 4),
                  static_cast<std::size_t>(end - begin) * sizeof(float));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilescope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilescope {

HWY_EXPORT(Factors);

void dropout_factors(const DropoutMask& dropout, const ScoreRegion& region, Queries along, float* factors,
                     std::ptrdiff_t stride) {
  HWY_DYNAMIC_DISPATCH(Factors)(dropout, region, along, factors, stride);
}

}  // namespace tilescope
#endif  // HWY_ONCE
