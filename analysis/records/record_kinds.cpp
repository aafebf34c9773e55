// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/record_kinds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "common/errors.hpp"

namespace tilescope {
namespace {

struct RecordKind {
  std::string_view schema;
  std::string_view written_by;
  std::string_view taken_by;  // empty: nothing
};

constexpr RecordKind kKinds[] = {
    {"tilescope.run/1", "`bench`, `profile --kernel`, `simulate`, `study`, `run` or `verify` wrote",
     "`report`, `diff`, `simulate --record` and `record merge` take"},
    {"tilescope.kernels/1", "`profile --json FILE -- COMMAND` or `emulate` wrote",
     "`explain`, `report`, `diff` and `profile --compare` take"},
    {"tilescope.explain/1", "`explain` wrote", "`report` takes"},
    {"tilescope.ceilings/1", "`ceilings` wrote", "`report` and `ceilings --from` take"},
    {"tilescope.distributed/1", "a command with --gpus wrote", "`report` takes"},
    {"tilescope.distributed-peers/1", "the script of other libraries on several GPUs wrote",
     "`explain` and `report` take"},
    {"tilescope.tiles/1", "`bench --tune` wrote", "`bench --tune-file` takes"},
    {"tilescope.timeline/1", "`profile --timeline` wrote", "`profile --timeline --samples` takes"},
    {"tilescope.self-test/1", "`profile --self-test` wrote", ""},
    {"tilescope.diff/1", "`diff` wrote", ""},
};

const RecordKind* kind_named(std::string_view schema) {
  const auto* const found = std::ranges::find(kKinds, schema, &RecordKind::schema);
  return found == std::end(kKinds) ? nullptr : found;
}

/// "; this is what `ceilings` wrote, which `report` and `ceilings --from` take"; empty where nobody knows.
std::string what_it_is(std::string_view schema) {
  if (const RecordKind* kind = kind_named(schema)) {
    return fmt::format("; this is what {}{}{}", kind->written_by,
                       kind->taken_by.empty() ? ", which no command takes" : ", which ", kind->taken_by);
  }
  const std::string_view name = schema.substr(0, schema.find('/') + 1);
  const bool other_version = !name.empty() && std::ranges::any_of(kKinds, [name](const RecordKind& kind) {
    return kind.schema.starts_with(name);
  });
  return other_version ? "; this is of another version of TileScope" : "";
}

/// A machine has no schema, but facts that no record has.
bool is_machine(const Json& json) {
  return json.is_object() && json.contains("sm_count") && json.contains("peak_flops_per_second");
}

/// "\"tilescope.run/1\", what `bench`, ... wrote"
std::string wanted_text(std::initializer_list<std::string_view> wanted) {
  std::vector<std::string> allowed;
  for (const std::string_view name : wanted) {
    const RecordKind* kind = kind_named(name);
    allowed.push_back(wanted.size() == 1 && kind ? fmt::format("\"{}\", what {}", name, kind->written_by)
                                                 : fmt::format("\"{}\"", name));
  }
  return fmt::format("{}", fmt::join(allowed, " or "));
}

}  // namespace

std::string require_kind(const std::string& source, const Json& json,
                         std::initializer_list<std::string_view> wanted) {
  const JsonField file(source, json);
  const bool machine = !file.has("schema") && is_machine(json);
  if (!machine && !file.has("schema")) {
    throw BadInput(source + " is not a TileScope record: its field \"schema\" is missing, and must be " +
                   wanted_text(wanted));
  }
  const std::string schema = machine ? "(none)" : file.at("schema").text();
  if (std::ranges::find(wanted, schema) != wanted.end()) return schema;
  throw BadInput(source + ": schema", machine ? schema : "\"" + schema + "\"",
                 fmt::format("must be {}{}", wanted_text(wanted),
                             machine ? "; this is a machine, which `--machine` takes" : what_it_is(schema)));
}

void refuse_records(const std::string& source, const Json& json) {
  if (!json.is_object() || !json.contains("schema") || !json["schema"].is_string()) return;
  const std::string schema = json["schema"].get<std::string>();
  throw BadInput(
      source + ": schema", "\"" + schema + "\"",
      "must not be there: a machine is a file as `list machines --template` prints" + what_it_is(schema));
}

}  // namespace tilescope
