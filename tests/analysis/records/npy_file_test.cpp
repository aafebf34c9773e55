// SPDX-License-Identifier: Apache-2.0
// .npy files: what NumPy writes is read back bit by bit, everything else is refused in one sentence.
#include "analysis/records/files/npy_file.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "common/errors.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;

/// A folder of its own that goes away with the test.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "npy_test.XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// An .npy file of `version` with this dictionary and `data_bytes` zero bytes after it.
std::string npy(const std::string& dictionary, std::size_t data_bytes, int version = 1) {
  std::string text = "\x93NUMPY";
  text += {static_cast<char>(version), '\0'};
  const std::string header = dictionary + "   \n";
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) text += static_cast<char>(header.size() >> 8 * i & 0xFF);
  return text + header + std::string(data_bytes, '\0');
}

const std::string kGood = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }";

/// The sentence with which `content` is refused.
std::string refusal(const Folder& folder, const std::string& content) {
  const std::string path = folder / "x.npy";
  write_text(path, content);
  try {
    read_npy("q", path);
  } catch (const BadInput& error) {
    const std::string message = error.what();
    CHECK(message.starts_with("q = " + path + ": must "));
    CHECK(message.find('\n') == std::string::npos);
    return message;
  }
  FAIL("not refused");
  return "";
}

TEST_CASE("tensors survive a round trip, NaN and infinities included") {
  const Folder folder;
  for (ElementType dtype : kElementTypes) {
    CAPTURE(to_string(dtype));
    Tensor tensor({2, 1, 3, 5}, dtype);
    for (int i = 0; i < 30; ++i) tensor.set(i, 0.25f * static_cast<float>(i) - 3);
    tensor.set(7, std::numeric_limits<float>::quiet_NaN());
    if (!is_fp8(dtype)) tensor.set(8, -std::numeric_limits<float>::infinity());
    const NpyOutput output{"t.npy", &tensor};
    write_npy_files("out", folder.path.string(), {&output, 1});
    const Tensor read = read_npy("q", folder / "t.npy");
    CHECK(read.shape() == tensor.shape());
    CHECK(read.dtype() == (dtype == ElementType::fp16 ? ElementType::fp16 : ElementType::fp32));
    for (int i = 0; i < 30; ++i) {
      CHECK((read.get(i) == tensor.get(i) || (std::isnan(read.get(i)) && std::isnan(tensor.get(i)))));
    }
  }
}

TEST_CASE("the bytes are those that NumPy writes") {
  const Folder folder;
  Tensor lse({1, 2, 3, 1}, ElementType::fp32);
  for (int i = 0; i < 6; ++i) lse.set(i, static_cast<float>(i));
  const NpyOutput output{"lse.npy", &lse};
  write_npy_files("out", folder.path.string(), {&output, 1});
  // numpy.save of arange(6, dtype="<f4").reshape(1, 2, 3): a v1 header padded to 128 bytes.
  std::string expected = std::string("\x93NUMPY\x01\x00\x76\x00", 10) +
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }";
  expected.resize(127, ' ');
  expected += '\n';
  expected.append(static_cast<const char*>(lse.data()), 24);
  CHECK(read_text(folder / "lse.npy") == expected);
}

TEST_CASE("header versions 1, 2 and 3, any order of keys, either quote") {
  const Folder folder;
  for (int version : {1, 2, 3}) {
    for (const std::string& header :
         {kGood, std::string("{\"shape\":(1,2,3,4),\"descr\":\"<f4\",\"fortran_order\":False}"),
          std::string("{'shape': (1L, 2L, 3L, 4L), 'fortran_order': False, 'descr': '<f4', }")}) {
      write_text(folder / "x.npy", npy(header, 96, version));
      CHECK(read_npy("q", folder / "x.npy").shape() == Shape{1, 2, 3, 4});
    }
  }
}

TEST_CASE("a file that is no array of the kind wanted is refused in one sentence") {
  const Folder folder;
  const auto with = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  };
  const std::string shape = "(1, 2, 3, 4)";
  const auto says = [&](const std::string& content, const std::string& words) {
    const std::string message = refusal(folder, content);
    CAPTURE(message);
    CHECK(message.find(words) != std::string::npos);
  };
  says("", "must be an .npy file");
  says("PK\x03\x04 an npz, for example", "must be an .npy file");
  says(npy(kGood, 96, 4), "version 1, 2 or 3, not 4");
  for (std::size_t length = 0; length < 12; ++length) refusal(folder, npy(kGood, 96).substr(0, length));
  says(npy(kGood, 96).substr(0, 40), "header as NumPy writes it");
  says(npy(kGood, 95), "is truncated to 95");
  says(npy(kGood, 0), "must hold the 96 bytes");
  says(npy(kGood, 97), "it has 97");
  for (const char* descr : {"'<f8'", "'<i4'", "'>f4'", "'|u1'", "'<V2'", "[('a', '<f4')]"}) {
    says(npy(with(descr, "False", shape), 96), "float32 or float16");
  }
  says(npy(with("'<f4'", "True", shape), 96), "C order, not Fortran order");
  for (const char* rank : {"()", "(24,)", "(2, 12)", "(2, 3, 4)", "(1, 1, 2, 3, 4)"}) {
    says(npy(with("'<f4'", "False", rank), 96), "four axes (B, H, N, D)");
  }
  says(npy(with("'<f4'", "False", "(1, 0, 3, 4)"), 0), "no empty axis");
  const std::string huge = "4294967296";
  says(npy(with("'<f4'", "False", "(" + huge + ", " + huge + ", 1, 1)"), 96), "below 2^63");
  for (const char* damaged :
       {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4, 'fortran_order': False, 'shape': (1, 2, 3, 4)}",
        "{'descr': '<f4', 'fortran_order': false, 'shape': (1, 2, 3, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, -3, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 99999999999999999999)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [1, 2, 3, 4]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4)} trailing",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), 'more': 1}"}) {
    says(npy(damaged, 96), "header as NumPy writes it");
  }
  CHECK_THROWS_AS(read_npy("q", folder / "missing.npy"), BadInput);
  CHECK_THROWS_AS(read_npy("q", folder.path.string()), BadInput);
}

TEST_CASE("a header cut or changed anywhere is refused or read, never worse") {
  const Folder folder;
  const std::string good = npy(kGood, 96);
  int read = 0, refused = 0;
  for (std::size_t i = 0; i < good.size() - 96; ++i) {
    for (char change : {'\0', '(', '\'', ',', '9', '\xff'}) {
      std::string damaged = good;
      damaged[i] = change;
      write_text(folder / "x.npy", damaged);
      try {
        const Tensor tensor = read_npy("q", folder / "x.npy");
        CHECK(tensor.bytes() == 96);
        ++read;
      } catch (const BadInput&) {
        ++refused;
      }
    }
  }
  CHECK(read > 0);  // a changed minor version, for one
  CHECK(refused > 300);
}

TEST_CASE("when one file cannot be written none is, and older files stay") {
  const Folder folder;
  Tensor tensor({1, 1, 2, 2}, ElementType::fp32);
  tensor.zero();
  write_text(folder / "a.npy", "old");
  fs::create_directory(folder / "b.npy");
  const NpyOutput outputs[] = {{"a.npy", &tensor}, {"b.npy", &tensor}};
  CHECK_THROWS_AS(write_npy_files("out", folder.path.string(), outputs), BadInput);
  CHECK(read_text(folder / "a.npy") == "old");
  CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()) == 2);
  CHECK_THROWS_AS(write_npy_files("out", folder / "missing", outputs), BadInput);
}

}  // namespace
}  // namespace tilescope
