// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/files/npy_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "analysis/records/files/pending_file.hpp"
#include "analysis/records/files/text_file.hpp"
#include "common/errors.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeaderBytes = 1 << 20;  // NumPy's own limit for untrusted files is 10,000
constexpr const char* kDamaged = "must be an .npy file with a header as NumPy writes it";

/// The values of the header's Python dictionary.
struct HeaderFields {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

/// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), } with the keys in any order. Every
/// step returns false where the text is not of this form.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  bool parse(HeaderFields& fields) {
    if (!take('{')) return false;
    while (!take('}')) {
      std::string key;
      if (!parse_string(key) || !take(':') || !parse_value(key, fields)) return false;
      if (!take(',')) {
        if (!take('}')) return false;
        break;
      }
    }
    skip_spaces();
    return text_.empty() && fields.descr && fields.fortran_order && fields.shape;
  }

 private:
  void skip_spaces() {
    while (!text_.empty() && std::strchr(" \t\r\n", text_.front()) != nullptr) text_.remove_prefix(1);
  }
  bool take(char c) {
    skip_spaces();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) {
    skip_spaces();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  bool parse_string(std::string& value) {
    skip_spaces();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) return false;
    const std::size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) return false;
    value = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return true;
  }
  bool parse_shape(std::vector<std::int64_t>& shape) {
    if (!take('(')) return false;
    while (!take(')')) {
      skip_spaces();
      std::int64_t extent = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0) return false;
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      take('L');  // Python 2 wrote long integers so
      shape.push_back(extent);
      if (!take(',')) return take(')');
    }
    return true;
  }
  bool parse_value(const std::string& key, HeaderFields& fields) {
    if (key == "shape") return parse_shape(fields.shape.emplace());
    if (key == "fortran_order") {
      const bool is_true = take_word("True");
      fields.fortran_order = is_true;
      return is_true || take_word("False");
    }
    if (key != "descr") return false;
    skip_spaces();
    if (text_.starts_with("[")) {  // a record type: named as it stands, and refused by the caller
      const std::size_t end = text_.find(']');
      if (end == std::string_view::npos) return false;
      fields.descr = text_.substr(0, end + 1);
      text_.remove_prefix(end + 1);
      return true;
    }
    return parse_string(fields.descr.emplace());
  }

  std::string_view text_;
};

/// Reads exactly `count` bytes, or says no.
bool read_exactly(std::istream& file, char* bytes, std::int64_t count) {
  file.read(bytes, static_cast<std::streamsize>(count));
  return file.gcount() == count;
}

HeaderFields read_header(const std::string& field, const std::string& path, std::istream& file,
                         std::int64_t& data_offset) {
  std::array<unsigned char, 12> start{};
  char* bytes = reinterpret_cast<char*>(start.data());
  if (!read_exactly(file, bytes, 8) || std::string_view(bytes, kMagic.size()) != kMagic) {
    throw BadInput(field, path, "must be an .npy file, as numpy.save writes it");
  }
  const int major = start[6];
  if (major < 1 || major > 3) {
    throw BadInput(field, path, fmt::format("must be of .npy version 1, 2 or 3, not {}", major));
  }
  const int length_bytes = major == 1 ? 2 : 4;
  if (!read_exactly(file, bytes + 8, length_bytes)) throw BadInput(field, path, kDamaged);
  std::size_t length = 0;
  for (int i = length_bytes; i-- > 0;) length = length << 8 | start[8 + i];
  if (length > kMaxHeaderBytes) throw BadInput(field, path, kDamaged);
  std::string text(length, '\0');
  HeaderFields fields;
  if (!read_exactly(file, text.data(), static_cast<std::int64_t>(length)) ||
      !HeaderParser(text).parse(fields)) {
    throw BadInput(field, path, kDamaged);
  }
  data_offset = 8 + length_bytes + static_cast<std::int64_t>(length);
  return fields;
}

ElementType parse_descr(const std::string& field, const std::string& path, const std::string& descr) {
  if (descr == "<f4" || descr == "=f4") return ElementType::fp32;
  if (descr == "<f2" || descr == "=f2") return ElementType::fp16;
  throw BadInput(field, path,
                 fmt::format("must hold little-endian float32 or float16 ('<f4' or '<f2'), not {}", descr));
}

/// Opens the file and reads its header. @throws BadInput
HeaderFields open_array(const std::string& field, const std::string& path, std::ifstream& file,
                        std::int64_t& data_offset) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) throw BadInput(field, path, "must be a file that exists");
  errno = 0;
  file.open(path, std::ios::binary);
  if (!file) throw BadInput(field, path, fmt::format("must be readable ({})", std::strerror(errno)));
  HeaderFields header = read_header(field, path, file, data_offset);
  if (*header.fortran_order && header.shape->size() > 1) {
    throw BadInput(field, path, "must be in C order, not Fortran order (numpy.ascontiguousarray converts)");
  }
  return header;
}

/// Bytes of the array. @throws BadInput unless the file holds exactly these
std::int64_t require_size(const std::string& field, const std::string& path,
                          const std::vector<std::int64_t>& shape, std::int64_t bytes,
                          std::int64_t data_offset) {
  const std::string shown = fmt::format("({})", fmt::join(shape, ", "));
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      throw BadInput(field, path, fmt::format("must be of a size below 2^63 bytes, unlike {}", shown));
  }
  std::error_code error;
  const auto held = static_cast<std::int64_t>(fs::file_size(path, error)) - data_offset;
  if (held == bytes) return bytes;
  throw BadInput(field, path,
                 fmt::format("must hold the {} bytes of its shape {}, it {} {}", bytes, shown,
                             held < bytes ? "is truncated to" : "has", held));
}

std::string header_of(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  std::vector<std::int64_t> extents = {shape.batch, shape.heads, shape.rows};
  if (shape.cols != 1) extents.push_back(shape.cols);
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                  npy_dtype(tensor.dtype()) == ElementType::fp16 ? "<f2" : "<f4", fmt::join(extents, ", "));
  constexpr std::size_t kPrefix = 10, kAlignment = 64;  // the data start at a multiple of 64 bytes
  const std::size_t total = (kPrefix + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.resize(total - kPrefix - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return header + text;
}

/// 0, or the errno of the step that failed.
int write_tensor(PendingFile& file, const Tensor& tensor) {
  const auto data = [](const Tensor& of) {
    return std::string_view(static_cast<const char*>(of.data()), static_cast<std::size_t>(of.bytes()));
  };
  const ElementType dtype = npy_dtype(tensor.dtype());
  const int error = file.write(header_of(tensor));
  if (error != 0) return error;
  return dtype == tensor.dtype() ? file.write(data(tensor)) : file.write(data(tensor.as(dtype)));
}

}  // namespace

NpyInfo inspect_npy(const std::string& field, const std::string& path, NpyAxes axes) {
  NpyInfo info;
  std::ifstream file;
  const HeaderFields header = open_array(field, path, file, info.data_offset);
  info.dtype = parse_descr(field, path, *header.descr);
  const std::vector<std::int64_t>& shape = *header.shape;
  const std::string shown = fmt::format("({})", fmt::join(shape, ", "));
  const bool packed = axes == NpyAxes::packed_qkv;
  if (packed && (shape.size() != 5 || shape[2] != 3)) {
    throw BadInput(field, path, fmt::format("must have five axes (B, N, 3, H, D), not the shape {}", shown));
  }
  if (!packed && shape.size() != 4) {
    throw BadInput(field, path, fmt::format("must have four axes (B, H, N, D), not the shape {}", shown));
  }
  for (std::int64_t extent : shape) {
    if (extent == 0) throw BadInput(field, path, fmt::format("must have no empty axis, unlike {}", shown));
  }
  require_size(field, path, shape, element_bytes(info.dtype), info.data_offset);
  info.shape = packed ? Shape{shape[0], shape[1], 3 * shape[3], shape[4]}
                      : Shape{shape[0], shape[1], shape[2], shape[3]};
  return info;
}

Tensor read_npy(const std::string& field, const std::string& path, NpyAxes axes) {
  const NpyInfo info = inspect_npy(field, path, axes);
  Tensor tensor(info.shape, info.dtype);
  std::ifstream file(path, std::ios::binary);
  file.seekg(info.data_offset);
  if (!file || !read_exactly(file, static_cast<char*>(tensor.data()), tensor.bytes())) {
    throw BadInput(field, path, "must stay readable to its end");
  }
  return tensor;
}

NpyArray read_npy_array(const std::string& field, const std::string& path) {
  NpyArray array;
  std::int64_t data_offset = 0;
  std::ifstream file;
  const HeaderFields header = open_array(field, path, file, data_offset);
  array.shape = *header.shape;
  array.descr = *header.descr;
  std::int64_t each = 0;
  const char* const end = array.descr.data() + array.descr.size();
  if (array.descr.size() < 3 || array.descr[0] == '>' ||
      std::from_chars(array.descr.data() + 2, end, each).ptr != end || each < 1 || each > 16) {
    throw BadInput(field, path, fmt::format("must hold little-endian numbers, not {}", array.descr));
  }
  array.bytes.resize(static_cast<std::size_t>(require_size(field, path, array.shape, each, data_offset)));
  if (!read_exactly(file, reinterpret_cast<char*>(array.bytes.data()),
                    static_cast<std::int64_t>(array.bytes.size()))) {
    throw BadInput(field, path, "must stay readable to its end");
  }
  return array;
}

ElementType npy_dtype(ElementType dtype) {
  return dtype == ElementType::fp16 ? ElementType::fp16 : ElementType::fp32;
}

void write_npy_files(const std::string& field, const std::string& folder,
                     std::span<const NpyOutput> outputs) {
  const auto final_name = [&](const NpyOutput& output) {
    return (fs::path(folder) / output.file_name).string();
  };
  std::vector<PendingFile> files;
  for (const NpyOutput& output : outputs) {
    if (fs::is_directory(final_name(output))) refuse_write(field, final_name(output), EISDIR);
    const int error = write_tensor(files.emplace_back(final_name(output)), *output.tensor);
    if (error != 0) refuse_write(field, final_name(output), error);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (const int error = files[i].commit()) refuse_write(field, final_name(outputs[i]), error);
  }
}

}  // namespace tilescope
