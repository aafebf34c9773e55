// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/run/input_files.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "cpu_ref/numeric/descales.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope::cli {
namespace {

std::string shown(const Shape& shape) {
  return fmt::format("({}, {}, {}, {})", shape.batch, shape.heads, shape.rows, shape.cols);
}

/// Of a C-ordered array (B, H, N, D).
StoredOrder plain_order(const Shape& shape) {
  return {0, shape.heads * shape.rows * shape.cols, shape.rows * shape.cols, shape.cols, 1};
}

InputFile plain_file(TensorName tensor, const std::string& path) {
  const NpyInfo info = inspect_npy(std::string(to_string(tensor)), path);
  return {tensor, path, NpyAxes::four, info, plain_order(info.shape)};
}

/// Of an array (B, Hkv, D, Nk).
InputFile transposed_file(TensorName tensor, const std::string& path) {
  InputFile file = plain_file(tensor, path);
  Shape& shape = file.info.shape;
  std::swap(shape.rows, shape.cols);
  std::swap(file.order.row, file.order.col);
  return file;
}

/// Three tensors of an array (B, N, 3 H, D).
std::vector<InputFile> packed_files(const std::string& path) {
  const NpyInfo packed = inspect_npy("qkv", path, NpyAxes::packed_qkv);
  const std::int64_t length = packed.shape.heads, heads = packed.shape.rows / 3, cols = packed.shape.cols;
  NpyInfo info = packed;
  info.shape = {packed.shape.batch, heads, length, cols};
  std::vector<InputFile> files;
  for (const TensorName tensor : {TensorName::q, TensorName::k, TensorName::v}) {
    const auto part = static_cast<std::int64_t>(files.size());
    files.push_back({tensor,
                     path,
                     NpyAxes::packed_qkv,
                     info,
                     {part * heads * cols, length * 3 * heads * cols, cols, 3 * heads * cols, 1}});
  }
  return files;
}

/// The stored array as (B, H, N, D).
Tensor in_order(const Tensor& stored, const InputFile& file) {
  const Shape& shape = file.info.shape;
  Tensor tensor(shape, stored.dtype());
  const int bytes = element_bytes(stored.dtype());
  const StoredOrder& order = file.order;
  auto* to = static_cast<std::byte*>(tensor.data());
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t first = order.first + batch * order.batch + head * order.head + row * order.row;
        const auto* from = static_cast<const std::byte*>(stored.data()) + first * bytes;
        for (std::int64_t col = 0; col < shape.cols; ++col, to += bytes) {
          std::memcpy(to, from + col * order.col * bytes, static_cast<std::size_t>(bytes));
        }
      }
    }
  }
  return tensor;
}

/// NaN is an input like any other, but in padding, which nobody reads; that it is there, and where it comes
/// from, is said.
void mention_nan(const CommandContext& context, const InputFile& file, const Tensor& tensor,
                 const AttentionProblem& problem) {
  const Shape& shape = tensor.shape();
  std::int64_t count = 0;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const std::int64_t rows = ends_at_padding(file.tensor) ? problem.keys_of(batch) : shape.rows;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t first = tensor.row_index(batch, head, 0);
      for (std::int64_t i = first; i < first + rows * shape.cols; ++i) count += std::isnan(tensor.get(i));
    }
  }
  if (count == 0 || context.quiet) return;
  fmt::print(stderr, "tilescope: note: {} = {} holds {} NaN, which reach{} the results\n",
             to_string(file.tensor), file.path, count, count == 1 ? "es" : "");
}

}  // namespace

std::vector<InputFile> input_files(const InputPaths& paths) {
  std::vector<InputFile> files;
  if (paths.qkv) {
    for (const auto& [field, path] : {std::pair{"q", paths.q}, {"k", paths.k}, {"v", paths.v}}) {
      if (path) throw BadInput(field, *path, "must be left out: --qkv holds it");
    }
    if (paths.v_transposed) throw BadInput("--v-transposed must be left out: --qkv holds the values");
    files = packed_files(*paths.qkv);
  } else if (paths.q || paths.k || paths.v) {
    for (const auto& [tensor, path] :
         {std::pair{TensorName::q, paths.q}, {TensorName::k, paths.k}, {TensorName::v, paths.v}}) {
      if (!path) {
        throw BadInput(std::string(to_string(tensor)), "''",
                       "must be given, as --q, --k and --v belong together");
      }
      const bool transposed = tensor == TensorName::v && paths.v_transposed;
      files.push_back(transposed ? transposed_file(tensor, *path) : plain_file(tensor, *path));
    }
  } else if (paths.dout) {
    throw BadInput("dout", *paths.dout, "must come with --q, --k and --v");
  } else if (paths.v_transposed) {
    throw BadInput("--v-transposed must come with --v");
  }
  if (paths.dout) files.push_back(plain_file(TensorName::dout, *paths.dout));
  return files;
}

AttentionProblem problem_of_files(const std::vector<InputFile>& files, const ProblemOptions& options) {
  const NpyInfo &q = files[0].info, &k = files[1].info;
  const auto require = [&](const InputFile& file, const Shape& shape, const char* why) {
    if (file.info.shape == shape) return;
    const bool transposed = file.order.row == 1 && file.order.col != 1;
    const auto as_stored = [&](Shape of) {
      if (transposed) std::swap(of.rows, of.cols);
      return shown(of);
    };
    throw BadInput(std::string(to_string(file.tensor)), file.path,
                   fmt::format("must have the shape {} {}{}, not {}", as_stored(shape), why,
                               transposed ? ", transposed" : "", as_stored(file.info.shape)));
  };
  require(files[1], {q.shape.batch, k.shape.heads, k.shape.rows, q.shape.cols}, "(batch and head size of q)");
  Shape values = k.shape, outputs = q.shape;
  const Shape& given = files[2].info.shape;
  if (given.rows == k.shape.rows) values.cols = outputs.cols = given.cols;  // may be of their own number
  require(files[2], values, "of k");
  if (files.size() > 3) require(files[3], outputs, "of q, with the columns of v");
  for (const InputFile& file : files) {
    if (options.dtype_given() || file.info.dtype == q.dtype) continue;
    throw BadInput(std::string(to_string(file.tensor)), file.path,
                   fmt::format("must hold {} like q, not {}; --dtype would round all of them alike",
                               to_string(q.dtype), to_string(file.info.dtype)));
  }
  return options.problem_of({.batch = q.shape.batch,
                             .heads = q.shape.heads,
                             .heads_kv = k.shape.heads,
                             .seqlen_q = q.shape.rows,
                             .seqlen_k = k.shape.rows,
                             .head_dim = q.shape.cols,
                             .dtype = q.dtype,
                             .head_dim_v = values.cols == q.shape.cols ? 0 : values.cols});
}

void load_inputs(const CommandContext& context, const std::vector<InputFile>& files, TensorSet& tensors) {
  fill_score_operands(tensors);
  for (const InputFile& file : files) {
    Tensor tensor = read_npy(std::string(to_string(file.tensor)), file.path, file.axes);
    if (file.axes != NpyAxes::four || file.order != plain_order(file.info.shape)) {
      tensor = in_order(tensor, file);
    }
    mention_nan(context, file, tensor, tensors.problem());
    if (file.tensor == TensorName::dout) {
      tensors[file.tensor] = tensor.as(tensors.problem().dtype);
    } else {
      store_input(tensors, file.tensor, tensor);
    }
  }
}

}  // namespace tilescope::cli
