// SPDX-License-Identifier: Apache-2.0
#include "profiler/records/json_tables.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace tilescope {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSeparator = '/';

bool is_table(const Json& json) {
  return json.is_object() && json.contains("columns") && json.contains("rows");
}

/// Whether an object's fields can be told by their paths, and their absence by null.
bool has_plain_fields(const Json& object) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_null() || key.find(kSeparator) != std::string::npos) return false;
  }
  return true;
}

/// Whether an array can be a table.
bool is_objects(const Json& json) {
  return json.is_array() && !json.empty() && std::all_of(json.begin(), json.end(), [](const Json& item) {
           return item.is_object() && has_plain_fields(item);
         });
}

/// Also in the kind of number: 0 and 0.0 are read by different readers.
bool is_same(const Json& a, const Json& b) {
  return a.type() == b.type() && a == b && (!a.is_structured() || a.dump() == b.dump());
}

/// Whether an object's fields can stand in columns of their own.
bool is_flat(const Json& object) {
  return object.is_object() && !object.empty() && !is_table(object) && has_plain_fields(object);
}

/// Columns by path, in the order in which they first come: a cell of each row, null where it has none.
struct Columns {
  std::vector<std::string> paths;
  std::vector<std::vector<Json>> cells;  // by column and row
  std::size_t rows = 0;

  void add(const std::string& path, const Json& value) {
    if (is_flat(value)) {
      for (const auto& [key, field] : value.items()) add(path.empty() ? key : path + kSeparator + key, field);
      return;
    }
    auto [place, added] = index.try_emplace(path, paths.size());
    if (added) {
      paths.push_back(path);
      cells.emplace_back();
    }
    std::vector<Json>& column = cells[place->second];
    column.resize(rows);
    column.push_back(value);
  }
  void end_row() {
    ++rows;
    for (auto& column : cells) column.resize(rows);
  }

 private:
  std::map<std::string, std::size_t> index;
};

Json table_of(const std::vector<const Json*>& objects);

/// A column of arrays of objects as one table: its rows stand in `column` instead of the objects.
Json nested_table(const std::string& path, std::vector<Json>& column) {
  std::vector<const Json*> all;
  for (const Json& cell : column) {
    for (const Json& item : cell) all.push_back(&item);
  }
  Json table = table_of(all);
  std::size_t next = 0;
  for (Json& cell : column) {
    if (cell.is_null()) continue;
    const std::size_t count = cell.size();
    cell = Json::array();
    for (std::size_t i = 0; i < count; ++i) cell.push_back(std::move(table["rows"][next++]));
  }
  Json head{{"column", path}};
  for (const auto& [key, value] : table.items()) {
    if (key != "rows") head[key] = value;
  }
  return head;
}

bool is_nested(const std::vector<Json>& column) {
  return std::any_of(column.begin(), column.end(), is_objects) &&
         std::all_of(column.begin(), column.end(),
                     [](const Json& cell) { return cell.is_null() || is_objects(cell); });
}

/// Whether texts or arrays, absent in rows of null, come so often that a place for each is a shorter table.
bool are_repeated(const std::vector<Json>& column) {
  constexpr std::size_t kWorth = 800;  // characters: words are read more easily than places
  std::set<std::string> values;
  std::size_t all = 0, repeated = 0;
  for (const Json& cell : column) {
    if (cell.is_null()) continue;
    if (!cell.is_string() && !cell.is_array()) return false;
    const std::string value = cell.dump();
    all += value.size();
    if (!values.insert(value).second) repeated += value.size();
  }
  return repeated > kWorth && 2 * repeated >= all;
}

/// A column's values, each once: its rows hold places among them instead.
Json take_values(std::vector<Json>& column) {
  Json values = Json::array();
  std::map<std::string, std::size_t> places;
  for (Json& cell : column) {
    if (cell.is_null()) continue;
    const auto [place, added] = places.try_emplace(cell.dump(), values.size());
    if (added) values.push_back(std::move(cell));
    cell = place->second;
  }
  return values;
}

Json table_of(const std::vector<const Json*>& objects) {
  Columns columns;
  for (const Json* object : objects) {
    for (const auto& [key, value] : object->items()) columns.add(key, value);
    columns.end_row();
  }
  Json every = Json::object(), same = Json::object(), names = Json::array(), rows = Json::array();
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < columns.paths.size(); ++i) {
    std::vector<Json>& cells = columns.cells[i];
    const auto twin = std::find_if(kept.begin(), kept.end(), [&](std::size_t k) {
      return std::equal(cells.begin(), cells.end(), columns.cells[k].begin(), is_same);
    });
    // An empty object is a cell in one row and a path of other cells in another.
    const bool plain =
        std::none_of(cells.begin(), cells.end(), [](const Json& cell) { return cell.is_object(); });
    if (is_nested(cells)) {
      names.push_back(nested_table(columns.paths[i], cells));
      kept.push_back(i);
    } else if (!cells[0].is_null() && std::all_of(cells.begin(), cells.end(), [&](const Json& cell) {
                 return is_same(cell, cells[0]);
               })) {
      every[columns.paths[i]] = cells[0];
    } else if (plain && twin != kept.end()) {
      same[columns.paths[i]] = columns.paths[*twin];
    } else {
      names.push_back(columns.paths[i]);
      kept.push_back(i);
    }
  }
  for (std::size_t k = 0; k < kept.size(); ++k) {  // after all comparisons
    std::vector<Json>& cells = columns.cells[kept[k]];
    if (!are_repeated(cells)) continue;
    if (names[k].is_string()) names[k] = Json{{"column", names[k]}};
    names[k]["values"] = take_values(cells);
  }
  for (std::size_t row = 0; row < columns.rows; ++row) {
    rows.push_back(Json::array());
    for (const std::size_t i : kept) rows.back().push_back(std::move(columns.cells[i][row]));
  }
  Json table = Json::object();
  if (!every.empty()) table["every"] = std::move(every);
  if (!same.empty()) table["same"] = std::move(same);
  table["columns"] = std::move(names);
  table["rows"] = std::move(rows);
  return table;
}

[[noreturn]] void refuse_table(const std::string& what) { throw DamagedTable("a table " + what); }

void put_at(Json& object, const std::string& path, Json value) {
  Json* place = &object;
  std::size_t start = 0;
  for (std::size_t end; (end = path.find(kSeparator, start)) != std::string::npos; start = end + 1) {
    place = &(*place)[path.substr(start, end - start)];
    if (!place->is_null() && !place->is_object())
      refuse_table("has a field " + path + " in what is no object");
  }
  (*place)[path.substr(start)] = std::move(value);
}

const Json* field_at(const Json& object, const std::string& path) {
  const Json* place = &object;
  std::size_t start = 0;
  while (true) {
    const std::size_t end = path.find(kSeparator, start);
    const auto found = place->is_object() ? place->find(path.substr(start, end - start)) : place->end();
    if (!place->is_object() || found == place->end()) return nullptr;
    place = &*found;
    if (end == std::string::npos) return place;
    start = end + 1;
  }
}

const Json& part_of(const Json& head, const char* key, Json::value_t type) {
  static const Json none = Json::object();
  if (!head.contains(key)) {
    if (type == Json::value_t::object) return none;
    refuse_table(std::string("lacks its ") + key);
  }
  if (head.at(key).type() != type) refuse_table(std::string("has ") + key + " of another kind");
  return head.at(key);
}

constexpr int kDeepest = 8;

Json objects_of(const Json& head, const Json& rows, int depth);

/// The cell, or what has its place among the values of its column, which older records call texts.
const Json& value_of(const Json& column, const Json& cell) {
  const char* key = column.contains("texts") ? "texts" : "values";
  if (!column.contains(key)) {
    if (!column.contains("columns"))
      refuse_table("lacks columns or values of " + column.dump().substr(0, 60));
    return cell;
  }
  const Json& values = part_of(column, key, Json::value_t::array);
  if (!cell.is_number_unsigned() || cell.get<std::size_t>() >= values.size()) {
    refuse_table("has " + cell.dump().substr(0, 60) + " for one of its " + std::to_string(values.size()) +
                 " " + key + " of " + column.at("column").get<std::string>());
  }
  return values[cell.get<std::size_t>()];
}

/// What a row's cell stands for under a column's name, or under a table or values of that name.
void put_cell(Json& object, const Json& column, const Json& cell, int depth) {
  if (column.is_string()) return put_at(object, column.get<std::string>(), cell);
  if (!column.is_object() || !column.contains("column") || !column.at("column").is_string()) {
    refuse_table("must have names as columns, or tables over rows, not " + column.dump().substr(0, 60));
  }
  const std::string path = column.at("column");
  const Json& value = value_of(column, cell);
  put_at(object, path, column.contains("columns") ? objects_of(column, value, depth + 1) : value);
}

/// The objects that `rows` under `head` (every, same, columns) stand for.
Json objects_of(const Json& head, const Json& rows, int depth) {
  if (depth > kDeepest) refuse_table("is nested too deeply");
  const Json& columns = part_of(head, "columns", Json::value_t::array);
  if (!rows.is_array()) refuse_table("must have rows, not " + rows.dump().substr(0, 60));
  Json objects = Json::array();
  for (const Json& row : rows) {
    if (!row.is_array() || row.size() != columns.size()) {
      refuse_table("must have rows of " + std::to_string(columns.size()) + " cells, not " +
                   row.dump().substr(0, 60));
    }
    Json object = Json::object();
    for (const auto& [path, value] : part_of(head, "every", Json::value_t::object).items()) {
      put_at(object, path, value);
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (!row[i].is_null()) put_cell(object, columns[i], row[i], depth);
    }
    for (const auto& [path, other] : part_of(head, "same", Json::value_t::object).items()) {
      if (!other.is_string()) refuse_table("has a field " + path + " that is the same as no other");
      const Json* twin = field_at(object, other.get<std::string>());
      if (twin != nullptr) put_at(object, path, Json(*twin));
    }
    objects.push_back(std::move(object));
  }
  return objects;
}

Json unpacked(Json json, int depth) {
  if (depth > kDeepest) return json;
  if (is_table(json)) return objects_of(json, part_of(json, "rows", Json::value_t::array), depth);
  if (json.is_object()) {
    for (auto& [key, value] : json.items()) value = unpacked(std::move(value), depth + 1);
  }
  return json;
}

std::string one_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// Which cells hold rows of a table.
std::vector<bool> nested_cells(const Json& columns) {
  std::vector<bool> nested;
  for (const Json& column : columns)
    nested.push_back(column.contains("columns") && !column.contains("values"));
  return nested;
}

std::string row_text(const Json& row, const std::vector<bool>& nested) {
  std::string text = "[";
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i > 0) text += ",";
    if (!nested[i] || row[i].is_null()) {
      text += one_line(row[i]);
      continue;
    }
    text += "[";
    for (std::size_t k = 0; k < row[i].size(); ++k) text += (k > 0 ? ",\n " : "\n ") + one_line(row[i][k]);
    text += "]";
  }
  return text + "]";
}

/// An array's items, one a line.
std::string items_text(const Json& items) {
  std::string text = "[";
  for (const Json& item : items) text += (text == "[" ? "\n" : ",\n") + one_line(item);
  return text + "]";
}

/// An object's fields, one a line.
std::string fields_text(const Json& object) {
  std::string text = "{";
  for (const auto& [key, value] : object.items()) {
    text += (text == "{" ? "\n" : ",\n") + one_line(key) + ": ";
    text += key == "values" && value.is_array() ? items_text(value) : one_line(value);
  }
  return text + "}";
}

std::string columns_text(const Json& columns) {
  std::string text = "[";
  for (const Json& column : columns) {
    text += (text == "[" ? "" : ", ") + (column.is_object() ? fields_text(column) : one_line(column));
  }
  return text + "]";
}

std::string table_lines(const Json& table) {
  std::string text = "{";
  for (const auto& [key, value] : table.items()) {
    text += (text == "{" ? "\n" : ",\n") + one_line(key) + ": ";
    if (key == "columns") {
      text += columns_text(value);
    } else if (key != "rows") {
      text += fields_text(value);
    }
  }
  text += "[";
  const std::vector<bool> nested = nested_cells(table.at("columns"));
  for (const Json& row : table.at("rows"))
    text += (text.back() == '[' ? "\n" : ",\n") + row_text(row, nested);
  return text + "]}";
}

}  // namespace

Json with_tables(const Json& json) {
  if (is_objects(json)) {
    std::vector<const Json*> objects;
    for (const Json& object : json) objects.push_back(&object);
    return table_of(objects);
  }
  if (!json.is_object()) return json;
  Json tables = Json::object();
  for (const auto& [key, value] : json.items()) tables[key] = with_tables(value);
  return tables;
}

Json without_tables(Json json) { return unpacked(std::move(json), 0); }

std::string table_text(const Json& json) {
  std::string text = "{";
  for (const auto& [key, value] : json.items()) {
    text += (text == "{" ? "\n" : ",\n") + one_line(key) + ": ";
    text += is_table(value) ? table_lines(value) : one_line(value);
  }
  return text + "\n}\n";
}

}  // namespace tilescope
