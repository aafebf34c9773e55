// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/emulate/launch_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>

#include "analysis/records/files/npy_file.hpp"
#include "analysis/records/files/text_file.hpp"
#include "common/memory_budget.hpp"
#include "common/nearest_names.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope::cli {

namespace emulator = gpu::emulator;

namespace {

constexpr std::size_t kGuardBytes = 64 << 10, kAlign = 256;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;

void require_only(const JsonField& object, std::vector<std::string> allowed) {
  for (const auto& [key, value] : object.entries()) {
    if (std::ranges::find(allowed, key) == allowed.end())
      throw unknown_name("the launch's field", key, allowed);
  }
}

/// 8, [8], [8, 2] or [8, 2, 1]
emulator::Extent read_extent(const JsonField& field) {
  constexpr std::int64_t kMost = 0x7fffffff;
  const auto one = [](const JsonField& number) { return static_cast<unsigned>(number.integer(1, kMost)); };
  if (field.value().is_number()) return {one(field), 1, 1};
  const std::vector<JsonField> items = field.items();
  if (items.empty() || items.size() > 3) field.refuse("must be one to three numbers");
  return {one(items[0]), items.size() > 1 ? one(items[1]) : 1, items.size() > 2 ? one(items[2]) : 1};
}

class Reader {
 public:
  explicit Reader(const std::string& path)
      : path_(path), json_(parse_json(path, read_text_file(path))), root_(path, json_) {}

  LaunchFile read();

 private:
  emulator::Argument read_argument(const JsonField& field, std::size_t index, LaunchFile& file);
  emulator::Argument read_scalar(const JsonField& field, const std::string& name) const;
  ArrayArgument read_array(const JsonField& field, const std::string& name, std::uint64_t seed) const;
  void read_expected(const JsonField& field, ArrayArgument& array) const;
  std::string beside(const std::string& name) const {
    return (std::filesystem::path(path_).parent_path() / name).string();
  }

  std::string path_;
  Json json_;
  JsonField root_;
};

std::int64_t bytes_of_shape(const JsonField& field, int element_bytes) {
  std::int64_t bytes = element_bytes;
  for (const JsonField& extent : field.items()) {
    if (__builtin_mul_overflow(bytes, extent.integer(0, kMostBytes), &bytes) || bytes > kMostBytes)
      field.refuse("must be of a size below 1 TiB");
  }
  return bytes;
}

ArrayArgument read_file_array(const JsonField& field, const std::string& name, const std::string& path) {
  const NpyArray array = read_npy_array(name, path);
  const ElementFormat* format = format_of_descr(array.descr);
  if (field.has("dtype")) format = &format_named("dtype", field.at("dtype").text());
  if (!format)
    throw BadInput(name, path, "must hold elements of a known type, not " + array.descr + "; or say dtype");
  if (array.bytes.size() % static_cast<std::size_t>(format->bytes) != 0)
    field.at("dtype").refuse("must be of the size of the file's elements");
  ArrayArgument argument{name, format, GuardedBuffer(array.bytes.size()), {}, format->tolerance};
  std::copy(array.bytes.begin(), array.bytes.end(), argument.buffer.bytes().begin());
  return argument;
}

ArrayArgument Reader::read_array(const JsonField& field, const std::string& name, std::uint64_t seed) const {
  require_only(field, {"name", "file", "dtype", "shape", "fill", "expect", "tolerance"});
  if (field.has("file")) return read_file_array(field, name, beside(field.at("file").text()));
  const ElementFormat& format = format_named("dtype of " + name, field.at("dtype").text());
  const std::int64_t bytes = bytes_of_shape(field.at("shape"), format.bytes);
  require_memory(bytes + 2 * static_cast<std::int64_t>(kGuardBytes), name, "a smaller shape would fit");
  ArrayArgument array{name, &format, GuardedBuffer(static_cast<std::size_t>(bytes)), {}, format.tolerance};
  array.uninitialised =
      !field.has("fill") || (field.at("fill").value().is_string() && field.at("fill").text() == "none");
  if (!field.has("fill")) {
    fill("fill", "none", format, array.buffer.bytes(), seed);
  } else if (field.at("fill").value().is_string()) {
    fill("fill of " + name, field.at("fill").text(), format, array.buffer.bytes(), seed);
  } else {
    fill(field.at("fill").number(), format, array.buffer.bytes());
  }
  return array;
}

void Reader::read_expected(const JsonField& field, ArrayArgument& array) const {
  if (field.has("tolerance")) array.tolerance = field.at("tolerance").finite(0);
  if (!field.has("expect")) return;
  const std::size_t count = array.buffer.bytes().size() / static_cast<std::size_t>(array.format->bytes);
  const JsonField expected = field.at("expect");
  if (!expected.value().is_string()) {
    array.expected.emplace(count, expected.number());
    return;
  }
  const NpyArray file = read_npy_array("expect of " + array.name, beside(expected.text()));
  const ElementFormat* const format = format_of_descr(file.descr);
  if (!format) expected.refuse("must be a file of a known element type, not " + file.descr);
  if (file.bytes.size() / static_cast<std::size_t>(format->bytes) != count)
    expected.refuse(fmt::format("must hold {} elements, as {} does", count, array.name));
  array.expected.emplace();
  for (std::size_t i = 0; i < count; ++i)
    array.expected->push_back(format->read(&file.bytes[i * static_cast<std::size_t>(format->bytes)]));
}

/// The bytes of a number of an element type. @throws BadInput for one that it does not hold
void write_number(const JsonField& field, const ElementFormat& format, std::byte* to) {
  const auto refuse = [&] { field.refuse(fmt::format("must be what {} holds", format.name)); };
  const Json& value = field.value();
  if (format.is_float) {
    format.write(to, field.number());
    if (std::isfinite(field.number()) && !std::isfinite(format.read(to))) refuse();
    return;
  }
  if (!value.is_number_integer()) field.refuse("must be an integer");
  const bool is_signed = format.descr[1] == 'i',
             negative = value.get<std::int64_t>() < 0 && !value.is_number_unsigned();
  const int bits = 8 * format.bytes - is_signed;  // of the magnitude
  const std::uint64_t number = value.get<std::uint64_t>(), magnitude = negative ? ~number : number;
  if ((negative && !is_signed) || (bits < 64 && magnitude >> bits != 0)) refuse();
  std::memcpy(to, &number, static_cast<std::size_t>(format.bytes));
}

emulator::Argument Reader::read_scalar(const JsonField& field, const std::string& name) const {
  emulator::Argument argument{.name = name};
  if (field.has("bytes")) {
    require_only(field, {"name", "bytes", "hex"});
    const auto size = static_cast<std::size_t>(field.at("bytes").integer(1, 4096));
    const std::string hex = field.at("hex").text();
    argument.value.resize(size);
    if (hex.size() != 2 * size || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      field.at("hex").refuse(fmt::format("must be {} hexadecimal digits", 2 * size));
    for (std::size_t i = 0; i < size; ++i)
      argument.value[i] = static_cast<std::byte>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
    return argument;
  }
  require_only(field, {"name", "dtype", "value"});
  const ElementFormat& format = format_named("dtype of " + name, field.at("dtype").text());
  argument.value.resize(static_cast<std::size_t>(format.bytes));
  write_number(field.at("value"), format, argument.value.data());
  argument.number = format.is_float ? emulator::Argument::Number::real : emulator::Argument::Number::whole;
  return argument;
}

emulator::Argument Reader::read_argument(const JsonField& field, std::size_t index, LaunchFile& file) {
  const std::string name = field.has("name") ? field.at("name").text() : fmt::format("argument {}", index);
  if (field.has("value") || field.has("bytes")) return read_scalar(field, name);
  ArrayArgument& array = file.arrays.emplace_back(read_array(field, name, index + 1));
  read_expected(field, array);
  return {
      .name = name, .buffer = array.buffer.bytes(), .is_buffer = true, .uninitialised = array.uninitialised};
}

LaunchFile Reader::read() {
  require_only(root_, {"kernel", "grid", "block", "cluster", "shared", "registers", "max_dynamic_shared",
                       "non_portable_cluster", "arguments"});
  LaunchFile file;
  emulator::KernelCall& call = file.call;
  if (root_.has("kernel")) call.kernel = root_.at("kernel").text();
  call.grid = read_extent(root_.at("grid"));
  call.block = read_extent(root_.at("block"));
  if (root_.has("cluster")) call.cluster = read_extent(root_.at("cluster"));
  if (root_.has("shared"))
    call.shared_bytes = static_cast<std::uint32_t>(root_.at("shared").integer(0, 1 << 24));
  if (root_.has("max_dynamic_shared"))
    call.attributes.max_dynamic_shared =
        static_cast<std::uint32_t>(root_.at("max_dynamic_shared").integer(0, 1 << 24));
  if (root_.has("non_portable_cluster"))
    call.attributes.non_portable_cluster = root_.at("non_portable_cluster").boolean();
  if (root_.has("registers")) call.registers = static_cast<int>(root_.at("registers").integer(1, 255));
  const std::vector<JsonField> arguments = root_.at("arguments").items();
  for (std::size_t i = 0; i < arguments.size(); ++i)
    call.arguments.push_back(read_argument(arguments[i], i, file));
  return file;
}

}  // namespace

GuardedBuffer::GuardedBuffer(std::size_t bytes) : memory_(bytes + 2 * kGuardBytes + kAlign), bytes_(bytes) {
  void* begin = memory_.data() + kGuardBytes;
  std::size_t space = bytes + kAlign;
  begin_ = static_cast<std::byte*>(std::align(kAlign, bytes, begin, space));
}

LaunchFile read_launch_file(const std::string& path) { return Reader(path).read(); }

}  // namespace tilescope::cli
