// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/difference.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/direction_total.hpp"
#include "analysis/model/replay/simulate_record.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

constexpr double kSame = 1e-3;  // relative: less is no difference to explain

/// What a direction's programs do to each tensor.
struct Account {
  std::vector<TileProgram> programs;
  std::array<std::int64_t, kNumTensors> bytes{};
  std::int64_t closed_form = 0;  // of the programs: the tensors, and flags and work counters beside them

  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const std::int64_t count : bytes) sum += count;
    return sum;
  }
};

Account account_of(const ComparedRun& run, Direction direction) {
  Account account;
  account.programs = run.kernel->programs(direction, run.run->problem, options_of(*run.run, *run.kernel));
  for (const TileProgram& program : account.programs) {
    const ClosedFormBytes bytes = closed_form_bytes(program);
    account.closed_form += bytes.sm_l2_bytes();
    for (const TensorTraffic& traffic : tensor_traffic(program)) {
      account.bytes[static_cast<std::size_t>(traffic.tensor)] +=
          traffic.load_bytes + traffic.filled_bytes + traffic.store_bytes + traffic.reduce_bytes;
    }
  }
  return account;
}

bool has(const std::vector<Operand>& operands, TensorName tensor) {
  return std::ranges::any_of(operands, [tensor](const Operand& operand) { return operand.tensor == tensor; });
}

/// Whether some pass moves the tensor with every inner tile, and not only once a block.
bool streams(const Account& account, TensorName tensor) {
  return std::ranges::any_of(account.programs, [tensor](const TileProgram& program) {
    return std::ranges::any_of(program.phases,
                               [tensor](const std::vector<Operand>& phase) { return has(phase, tensor); });
  });
}

/// The program with most work.
const TileProgram& main_program(const Account& account) {
  return *std::ranges::max_element(account.programs, [](const TileProgram& a, const TileProgram& b) {
    return a.visited_tiles() * a.products.count() < b.visited_tiles() * b.products.count();
  });
}

std::string tile_of(const Account& account) {
  const TileShape tile = main_program(account).tile;
  return fmt::format("{}x{}", tile.block_m, tile.block_n);
}

/// How often the whole tensor is moved: "33 times", "once".
std::string times_over(const Account& account, const AttentionProblem& problem, TensorName tensor) {
  const auto size = static_cast<double>(tensor_extent(problem, tensor).bytes());
  const std::string times =
      fmt::format("{:.3g}", static_cast<double>(account.bytes[static_cast<std::size_t>(tensor)]) / size);
  return times == "1" ? "once" : times + " times";
}

/// @param it what the sentence calls the tensor: it, or them for several
std::string tensor_reason(const ComparedRun& more, const Account& most, const ComparedRun& less,
                          const Account& least, TensorName tensor, const char* it) {
  const auto of = [tensor](const Account& account) {
    return account.bytes[static_cast<std::size_t>(tensor)];
  };
  const AttentionProblem& problem = more.run->problem;
  if (of(least) == 0) {
    return fmt::format("{} keeps {} in memory, {} on chip", more.label, it, less.label);
  }
  const std::string often =
      fmt::format("{} moves {} {} over, {} {}", more.label, it, times_over(most, problem, tensor), less.label,
                  times_over(least, problem, tensor));
  if (streams(most, tensor) && !streams(least, tensor)) {
    return fmt::format("{}: the one with every tile that it visits, the other once a block", often);
  }
  if (tile_of(most) != tile_of(least)) {
    return fmt::format("{}, by tiles of {} against {}", often, tile_of(most), tile_of(least));
  }
  return often;
}

/// What decides DRAM bytes while those at SM<->L2 are the same.
std::string dram_reason(const ComparedRun& more, const ComparedRun& less, const Machine* machine) {
  const auto order = [](const ComparedRun& run) { return run.run->order.value_or(TileOrder::row_major); };
  const auto scan = [](const ComparedRun& run) { return run.run->scan.value_or(Scan::ascending); };
  if (order(more) != order(less)) {
    return fmt::format("the CTAs of {} are issued {}, those of {} {}", more.label, to_string(order(more)),
                       less.label, to_string(order(less)));
  }
  if (scan(more) != scan(less)) {
    return fmt::format("{} walks its tiles {}, {} {}", more.label, to_string(scan(more)), less.label,
                       to_string(scan(less)));
  }
  const auto &was = more.run->passes.front().simulated, &is = less.run->passes.front().simulated;
  if (was->machine != is->machine)
    return fmt::format("one was simulated on {}, the other on {}", was->machine, is->machine);
  if (was->l2_bytes != is->l2_bytes) return "the L2 is of another size";
  if (was->co_resident_ctas != is->co_resident_ctas) {
    return fmt::format("{} has {} CTAs at once, {} {}", more.label, was->co_resident_ctas, less.label,
                       is->co_resident_ctas);
  }
  if (machine != nullptr &&
      machine->knows_progress_on(more.run->math_unit) != machine->knows_progress_on(less.run->math_unit)) {
    const bool known = machine->knows_progress_on(more.run->math_unit);
    return fmt::format(
        "the model lets the CTAs of {} drift apart at measured rates, and keeps those of {} in lockstep",
        (known ? more : less).label, (known ? less : more).label);
  }
  return "the L2 keeps less of what they share";
}

std::string factor(double more, double less) { return less > 0 ? format_ratio(more / less) : "without end"; }

bool differ(double a, double b) { return std::abs(a - b) > kSame * std::max(a, b); }

/// What one account moves of a tensor more than the other.
struct Piece {
  TensorName tensor;
  std::int64_t bytes;
};

/// The largest first.
std::vector<Piece> parts_of(const Account& most, const Account& least) {
  std::vector<Piece> parts;
  for (std::size_t i = 0; i < most.bytes.size(); ++i) {
    parts.push_back({static_cast<TensorName>(i), most.bytes[i] - least.bytes[i]});
  }
  std::ranges::stable_sort(parts, std::ranges::greater{}, &Piece::bytes);
  return parts;
}

/// "4.295 GB more, all of it k and v (+2.147 GB each): A moves them ..."
std::string largest_part(const ComparedRun& more, const Account& most, const ComparedRun& less,
                         const Account& least) {
  const std::vector<Piece> parts = parts_of(most, least);
  const auto reason = [&](const Piece& part, const char* it) {
    return tensor_reason(more, most, less, least, part.tensor, it);
  };
  const Piece& first = parts.front();
  std::string names(to_string(first.tensor));
  int equal = 1;
  for (auto part = parts.begin() + 1; part != parts.end(); ++part) {
    if (part->bytes != first.bytes || reason(*part, "it") != reason(first, "it")) continue;
    names += fmt::format(" and {}", to_string(part->tensor));
    ++equal;
  }
  const auto gap = static_cast<double>(most.total() - least.total());
  const auto sum = static_cast<double>(equal * first.bytes);
  const char* share = sum > (1 + kSame) * gap   ? "from more of "
                      : sum > (1 - kSame) * gap ? "all of it "
                      : sum > 0.5 * gap         ? "most of it "
                                                : "the largest part ";
  std::string text = fmt::format("{} more, {}{} (+{}{}", format_bytes(gap), share, names,
                                 format_bytes(static_cast<double>(first.bytes)), equal > 1 ? " each)" : ")");
  if (sum > (1 + kSame) * gap) {
    std::int64_t others = 0;
    for (const Piece& part : parts) others += std::max<std::int64_t>(part.bytes, 0);
    others -= equal * first.bytes;
    if (others > 0) text += fmt::format(" and others (+{})", format_bytes(static_cast<double>(others)));
    std::vector<std::string_view> shrunk;
    std::int64_t less_bytes = 0;
    for (auto part = parts.rbegin(); part->bytes < 0; ++part) {  // not all are, since their sum is not
      shrunk.push_back(to_string(part->tensor));
      less_bytes -= part->bytes;
    }
    text += fmt::format(" against less of {} (-{})", fmt::join(shrunk, ", "),
                        format_bytes(static_cast<double>(less_bytes)));
  }
  return text + ": " + reason(first, equal > 1 ? "them" : "it");
}

std::int64_t recorded_bytes(const PassRecord& total) { return total.closed_form->sm_l2_bytes(); }

/// "A moves 1.35x as much at SM<->L2 as B."
std::string totals_text(const ComparedRun& one, const PassRecord& first, const ComparedRun& other,
                        const PassRecord& second) {
  const auto a = static_cast<double>(recorded_bytes(first)), b = static_cast<double>(recorded_bytes(second));
  if (!differ(a, b)) return fmt::format("{} and {} move the same at SM<->L2.", one.label, other.label);
  return a > b ? fmt::format("{} moves {} as much at SM<->L2 as {}.", one.label, factor(a, b), other.label)
               : fmt::format("{} moves {} as much at SM<->L2 as {}.", other.label, factor(b, a), one.label);
}

/// What a record holds that the programs of its run do not move, as where another version of TileScope wrote
/// it.
std::string unexplained_text(const ComparedRun& run, const Account& account, const PassRecord& total) {
  const auto rest = static_cast<double>(recorded_bytes(total) - account.closed_form);
  if (rest == 0) return "";
  return fmt::format(
      " Its programs move {} {} than the record of {} holds: no tensor explains the difference.",
      format_bytes(std::abs(rest)), rest > 0 ? "less" : "more", run.label);
}

/// What the sentence on tensors leaves out; empty where it has all.
std::string left_over_text(const ComparedRun& run, const Account& account) {
  const std::int64_t rest = account.closed_form - account.total();
  if (rest == 0) return "";
  return fmt::format(" Beside its tensors {} moves {}: {}flags and work counters.", run.label,
                     format_bytes(static_cast<double>(rest)),
                     run.run->problem.page_size > 0 ? "entries of the page table, " : "");
}

std::string why_bytes_differ(const ComparedRun& one, const ComparedRun& other, Direction direction,
                             const Machine* machine) {
  const auto first = direction_total(*one.run, direction), second = direction_total(*other.run, direction);
  if (!first || !second || !first->closed_form || !second->closed_form) return "";
  const Account a = account_of(one, direction), b = account_of(other, direction);
  const std::string unexplained = unexplained_text(one, a, *first) + unexplained_text(other, b, *second);
  if (!unexplained.empty()) return totals_text(one, *first, other, *second) + unexplained;
  if (differ(static_cast<double>(a.total()), static_cast<double>(b.total()))) {
    const bool one_more = a.total() > b.total();
    const Account &most = one_more ? a : b, &least = one_more ? b : a;
    const ComparedRun &more = one_more ? one : other, &less = one_more ? other : one;
    return fmt::format("{} moves {} as much at SM<->L2 as {}, {}.{}{}", more.label,
                       factor(static_cast<double>(most.total()), static_cast<double>(least.total())),
                       less.label, largest_part(more, most, less, least), left_over_text(one, a),
                       left_over_text(other, b));
  }
  if (!first->simulated || !second->simulated)
    return fmt::format("{} and {} move the same.", one.label, other.label);
  const auto dram = [](const PassRecord& total) {
    return static_cast<double>(total.simulated->dram_bytes());
  };
  if (!differ(dram(*first), dram(*second))) {
    return fmt::format("{} and {} move the same at both boundaries.", one.label, other.label);
  }
  const bool one_more = dram(*first) > dram(*second);
  const ComparedRun &more = one_more ? one : other, &less = one_more ? other : one;
  const double most = std::max(dram(*first), dram(*second)), least = std::min(dram(*first), dram(*second));
  if (factor(most, least) == factor(1, 1)) {  // printed, it would be no difference: none to find a cause for
    return fmt::format("{} and {} move the same at SM<->L2, and at DRAM within {:.1f} %.", one.label,
                       other.label, 100 * (most / least - 1));
  }
  return fmt::format("At SM<->L2 both move the same; at DRAM {} moves {} as much as {}: {}.", more.label,
                     factor(most, least), less.label, dram_reason(more, less, machine));
}

/// What cutting tiles finer saves of the products: "A computes 1.15 FLOP for a useful one, B 1.05."
std::string what_is_computed(const ComparedRun& one, const ComparedRun& other, Direction direction) {
  const auto first = direction_total(*one.run, direction), second = direction_total(*other.run, direction);
  if (!first || !second || first->flops == 0 || second->flops == 0) return "";
  const auto slices = [](const ComparedRun& run) {
    return options_of(*run.run, *run.kernel).diagonal_slices;
  };
  if (slices(one) == slices(other)) return "";
  const auto ratio = [](const PassRecord& total) {
    return static_cast<double>(total.executed_flops) / static_cast<double>(total.flops);
  };
  return fmt::format(" {} computes {:.3f} FLOP for a useful one, {} {:.3f}.", one.label, ratio(*first),
                     other.label, ratio(*second));
}

}  // namespace

std::string why_different(const ComparedRun& one, const ComparedRun& other, Direction direction,
                          const Machine* machine) {
  return why_bytes_differ(one, other, direction, machine) + what_is_computed(one, other, direction);
}

}  // namespace tilescope
