// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/options/refusals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/cli/text_table.hpp"
#include "common/log.hpp"

namespace tilescope::cli {
namespace {

/// Without the kernel's name, which stands before it.
std::string reason_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const BadInput& refusal) {
    return refusal.field() == "kernel" ? refusal.allowed() : refusal.what();
  } catch (const std::exception& lack) {
    return lack.what();
  }
}

std::string named(const std::string& what, const std::string& reason) {
  return what.empty() ? reason : what + ": " + reason;
}

}  // namespace

std::string kernel_and_direction(std::string_view kernel, Direction direction) {
  return fmt::format("{}, {}", kernel, to_string(direction));
}

void Refusals::add(const std::string& what, const std::string& problem, std::exception_ptr thrown,
                   std::size_t runs) {
  all_.push_back({what, problem, reason_of(thrown), std::move(thrown), runs});
  log_text(LogLevel::warning, [this] { return "left out: " + all_.back().line(); });
}

std::string Refusals::text(std::size_t ran) const {
  struct Group {
    std::string line, problem;
    std::size_t count;
  };
  std::vector<Group> groups;
  std::size_t refused = 0;
  for (const Refusal& refusal : all_) {
    refused += refusal.runs;
    const std::string line = named(refusal.what, refusal.reason);
    const auto same = std::ranges::find(groups, line, &Group::line);
    if (same != groups.end()) {
      ++same->count;
    } else {
      groups.push_back({line, refusal.problem, 1});
    }
  }
  std::string text;
  for (const Group& group : groups) {
    const std::string where = group.count > 1 ? counted(std::int64_t(group.count), "run") : group.problem;
    text += wrapped("left out: " + group.line + (where.empty() ? "" : " (" + where + ")"), "  ");
  }
  return text.empty()
             ? ""
             : text + fmt::format("{} of {} refused\n", refused, counted(std::int64_t(refused + ran), "run"));
}

std::string Refusals::Refusal::line() const {
  return named(what.empty() || problem.empty() ? what + problem : what + ", " + problem, reason);
}

std::vector<std::string> Refusals::lines() const {
  std::vector<std::string> lines;
  for (const Refusal& refusal : all_) lines.push_back(refusal.line());
  return lines;
}

}  // namespace tilescope::cli
