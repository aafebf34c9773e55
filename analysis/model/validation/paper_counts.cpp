// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/validation/paper_counts.hpp"

#include <string>
#include <vector>

#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

constexpr PaperCount kCounts[] = {
    // Each matrix product reads its operands once and writes its result once, which favours the baseline.
    {"standard-forward", "FlashAttention, Algorithm 0", "3Nd + 2N^2", "Nd + 2N^2",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t n = s.seqlen, d = s.head_dim;
       return {3 * n * d + 2 * n * n, n * d + 2 * n * n};
     }},
    {"standard-backward", "FlashAttention, Algorithm 3", "5Nd + 5N^2", "3Nd + 2N^2",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t n = s.seqlen, d = s.head_dim;
       return {5 * n * d + 5 * n * n, 3 * n * d + 2 * n * n};
     }},
    // O, l and m are initialised in slow memory, and read and written at every step.
    {"flash1-forward", "FlashAttention, Algorithm 1, literally", "2Nd + Tc(2Nd + 2N)",
     "(Nd + 2N) + Tc(Nd + 2N)",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t n = s.seqlen, nd = n * s.head_dim, tc = s.kv_blocks;
       return {2 * nd + tc * (2 * nd + 2 * n), (1 + tc) * (nd + 2 * n)};
     }},
    {"flash1-forward-elided", "Algorithm 1 without the initialisation and the first read of O, l and m",
     "2Nd + Tc Nd + (Tc - 1)(Nd + 2N)", "Tc(Nd + 2N)",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t n = s.seqlen, nd = n * s.head_dim, tc = s.kv_blocks;
       return {2 * nd + tc * nd + (tc - 1) * (nd + 2 * n), tc * (nd + 2 * n)};
     }},
    {"flash1-backward", "FlashAttention, Algorithm 4, literally", "2Nd + Tc(4Nd + 2N)", "5Nd + Tc Nd",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t n = s.seqlen, nd = n * s.head_dim, tc = s.kv_blocks;
       return {2 * nd + tc * (4 * nd + 2 * n), 5 * nd + tc * nd};
     }},
    // With the elided forward, the reading that gives the paper's Figure 2 its 4.4 GB.
    {"flash1-backward-elided", "Algorithm 4 without O, l, m and the initialisation", "2Nd + 3 Tc Nd",
     "2Nd + Tc Nd",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t nd = s.seqlen * s.head_dim, tc = s.kv_blocks;
       return {2 * nd + 3 * tc * nd, 2 * nd + tc * nd};
     }},
    {"flash2-forward", "FlashAttention-2, Algorithm 1", "Nd + 2 Tr Nd", "Nd + N",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t n = s.seqlen, nd = n * s.head_dim;
       return {nd + 2 * s.q_blocks * nd, nd + n};
     }},
    {"flash2-backward", "FlashAttention-2, Algorithm 2: D pass, dQ initialised, read and written a block",
     "4Nd + Tc(3Nd + 2N)", "3Nd + N + Tc Nd",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t n = s.seqlen, nd = n * s.head_dim, tc = s.kv_blocks;
       return {4 * nd + tc * (3 * nd + 2 * n), 3 * nd + n + tc * nd};
     }},
    {"flash2-backward-atomic", "the same, main kernel only, dQ by atomic adds: as shipped",
     "2Nd + Tc(2Nd + 2N)", "2Nd + Tc Nd",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t n = s.seqlen, nd = n * s.head_dim, tc = s.kv_blocks;
       return {2 * nd + tc * (2 * nd + 2 * n), 2 * nd + tc * nd};
     }},
    {"compulsory-forward", "every input read once, every output written once", "3Nd", "Nd + N",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t n = s.seqlen, nd = n * s.head_dim;
       return {3 * nd, nd + n};
     }},
    {"compulsory-backward", "every input read once, every output written once", "5Nd + N", "3Nd",
     [](const PaperShape& s) -> ElementCount {
       const std::int64_t n = s.seqlen, nd = n * s.head_dim;
       return {5 * nd + n, 3 * nd};
     }},
};

}  // namespace

std::span<const PaperCount> paper_counts() { return kCounts; }

const PaperCount& find_paper_count(std::string_view name) { return find_named(kCounts, "count", name); }

}  // namespace tilescope
