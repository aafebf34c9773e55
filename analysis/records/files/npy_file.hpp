// SPDX-License-Identifier: Apache-2.0
// Tensors in NumPy's .npy files. Source of the format: numpy/lib/format.py, versions 1.0, 2.0 and 3.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cpu_ref/numeric/tensor.hpp"

namespace tilescope {

/// The axes that an array may have.
enum class NpyAxes : std::uint8_t {
  four,        // (B, H, N, D)
  packed_qkv,  // (B, N, 3, H, D), told as (B, N, 3 H, D)
};

/// Shape and element type of the array in a file that read_npy accepts.
struct NpyInfo {
  Shape shape;
  ElementType dtype = ElementType::fp32;
  std::int64_t data_offset = 0;  // [bytes]
};

/// Reads the header only. Accepted: one array with these axes, C order, little-endian float32 or
/// float16, every extent at least 1, and a file that holds exactly its data.
/// @param field the option that named the file, for the message
/// @throws BadInput saying in one sentence what is wrong and what is allowed
NpyInfo inspect_npy(const std::string& field, const std::string& path, NpyAxes axes = NpyAxes::four);

/// Reads the whole array; a file that is cut short while it is read is refused too.
/// @throws BadInput as inspect_npy; MachineLacks if it does not fit in memory
Tensor read_npy(const std::string& field, const std::string& path, NpyAxes axes = NpyAxes::four);

/// An array of any shape and element type, in C order, its elements little-endian.
struct NpyArray {
  std::vector<std::int64_t> shape;
  std::string descr;  // as NumPy names the elements: "<f4", "|i1"
  std::vector<std::byte> bytes;
};
/// @throws BadInput as inspect_npy
NpyArray read_npy_array(const std::string& field, const std::string& path);

/// A tensor and the file name to write it under. A tensor with one column is written with rank 3, (B, H, N).
struct NpyOutput {
  std::string file_name;
  const Tensor* tensor;
};

/// The element type that .npy files hold for tensors of `dtype`: fp32 and fp16 are kept; NumPy has no bf16
/// and no fp8, so these are widened to fp32, which is exact.
ElementType npy_dtype(ElementType dtype);

/// Writes every file before it puts the first in its place: either every file is there and whole or,
/// when one cannot be written, none of them is and older files of these names are as they were.
/// @throws BadInput if a file cannot be written
void write_npy_files(const std::string& field, const std::string& folder, std::span<const NpyOutput> outputs);

}  // namespace tilescope
