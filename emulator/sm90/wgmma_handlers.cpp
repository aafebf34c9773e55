// SPDX-License-Identifier: Apache-2.0
// wgmma: each warp of the warpgroup multiplies its 16 rows. Shared operands are read at a time between the
// issue and a wait that covers it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <type_traits>

#include "cpu_ref/numeric/numeric.hpp"
#include "emulator/machine/address_space.hpp"
#include "emulator/machine/cta_order.hpp"
#include "emulator/machine/instructions/fragments.hpp"
#include "emulator/machine/instructions/select.hpp"
#include "emulator/sm90/handlers.hpp"
#include "emulator/sm90/state.hpp"
#include "emulator/sm90/wgmma_operand.hpp"
#include "emulator/sm90/wgmma_sums.hpp"
#include "gpu/primitives/sm90/byte_layout.hpp"
#include "gpu/primitives/sm90/fragments.hpp"

namespace tilescope::gpu::emulator {
namespace {

int element_bytes_of(ptx::Type type) {
  switch (type) {
    case ptx::Type::tf32:
      return 4;
    case ptx::Type::f16:
    case ptx::Type::bf16:
      return 2;
    case ptx::Type::e4m3:
    case ptx::Type::e5m2:
    case ptx::Type::s8:
    case ptx::Type::u8:
      return 1;
    default:
      throw std::runtime_error("wgmma of a type that is not known");
  }
}

/// None of tf32 and of whole numbers.
std::optional<ElementType> float_type(ptx::Type type) {
  switch (type) {
    case ptx::Type::f16:
      return ElementType::fp16;
    case ptx::Type::bf16:
      return ElementType::bf16;
    case ptx::Type::e4m3:
      return ElementType::fp8e4m3;
    case ptx::Type::e5m2:
      return ElementType::fp8e5m2;
    default:
      return std::nullopt;
  }
}

/// One instruction of one warp, with all that it takes from registers.
struct Product {
  ptx::Type a_type{}, b_type{};
  ResultFormat format{};
  bool saturates = false;  // of whole numbers
  int cols = 0;
  Major major_a = Major::k, major_b = Major::k;
  bool a_in_registers = false, negate_a = false, negate_b = false, accumulate = false;
  int first_row = 0;  // of A, in its descriptor
  std::uint64_t a_descriptor = 0, b_descriptor = 0;
  std::vector<std::byte> a_rows;  // from registers

  int element_bytes() const { return element_bytes_of(a_type); }
  bool is_whole() const { return emulator::is_whole(a_type); }
  int depth() const { return kProductDepthBytes / element_bytes(); }
};

/// The left operand's registers as 16 rows: of every type four bytes lie together as bytes do.
std::vector<std::byte> rows_of_fragments(const Warp& warp, const ptx::Operand& fragments) {
  std::vector<std::byte> rows(kWarpRows * kProductDepthBytes);
  for (int index = 0; index < 4; ++index) {
    const std::uint32_t* values =
        warp.read<std::uint32_t>(fragments.elements[static_cast<std::size_t>(index)]);
    for (int lane = 0; lane < ptx::kLanes; ++lane) {
      const sm90::Entry entry = sm90::left_byte_entry(lane, index, 0);
      std::memcpy(&rows[static_cast<std::size_t>(entry.row * kProductDepthBytes + entry.col)], &values[lane],
                  4);
    }
  }
  return rows;
}

ResultFormat result_format(const ptx::Instruction& instruction) {
  return instruction.types[0] == ptx::Type::f16 ? ResultFormat::halves : ResultFormat::words;
}
/// N, as the result's registers say.
int result_columns(const ptx::Instruction& instruction) {
  const int registers = static_cast<int>(instruction.operands[0].elements.size());
  return (result_format(instruction) == ResultFormat::halves ? 4 : 2) * registers;
}

Product decode(const Warp& warp, const ptx::Instruction& instruction) {
  const std::vector<ptx::Operand>& operands = instruction.operands;
  const int lane = warp.leader();
  const auto flag = [&](std::size_t index) { return warp.value(operands[index], lane) == 1; };
  Product product;
  product.a_type = instruction.types[1];
  product.b_type = instruction.types[2];
  product.format = result_format(instruction);
  product.saturates = instruction.has("satfinite");
  product.cols = result_columns(instruction);
  product.a_in_registers = operands[1].kind == ptx::Operand::Kind::vector;
  product.first_row = kWarpRows * static_cast<int>(warp.index % 4);
  if (product.a_in_registers) {
    product.a_rows = rows_of_fragments(warp, operands[1]);
  } else {
    product.a_descriptor = warp.value(operands[1], lane);
  }
  product.b_descriptor = warp.value(operands[2], lane);
  product.accumulate = warp.predicate(operands[3]) != 0;
  // Whole numbers have neither signs nor layouts to choose.
  std::size_t next = product.is_whole() ? operands.size() : 6;
  product.negate_a = !product.is_whole() && !flag(4);
  product.negate_b = !product.is_whole() && !flag(5);
  if (!product.a_in_registers && next + 1 < operands.size()) {
    product.major_a = flag(next++) ? Major::mn : Major::k;
  }
  if (next < operands.size()) product.major_b = flag(next) ? Major::mn : Major::k;
  return product;
}

/// Calls read(address, target) for the shared operands, chunk by chunk, A's 16 rows and all of B's.
std::vector<std::byte> a_rows(const Product& product, const ReadChunk& read) {
  if (product.a_in_registers) return product.a_rows;
  return gather_operand(product.a_descriptor, product.major_a, product.element_bytes(), product.first_row,
                        kWarpRows, read);
}
std::vector<std::byte> b_rows(const Product& product, const ReadChunk& read) {
  return gather_operand(product.b_descriptor, product.major_b, product.element_bytes(), 0, product.cols,
                        read);
}

/// The numbers of rows, one after the other.
template <class Value>
std::vector<Value> numbers(ptx::Type type, const std::vector<std::byte>& rows, bool negate) {
  const auto bytes = static_cast<std::size_t>(element_bytes_of(type));
  std::vector<Value> values(rows.size() / bytes);
  if constexpr (std::is_same_v<Value, std::int32_t>) {
    std::transform(rows.begin(), rows.end(), values.begin(), [&](std::byte byte) {
      const auto bits = static_cast<std::uint8_t>(byte);
      return type == ptx::Type::s8 ? static_cast<std::int8_t>(bits) : std::int32_t{bits};
    });
  } else {
    const auto count = static_cast<std::int64_t>(values.size());
    if (type == ptx::Type::tf32) {
      std::memcpy(values.data(), rows.data(), rows.size());
      for (float& value : values)
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffffe000u);
    } else {
      widen(*float_type(type), rows.data(), values.data(), count);
    }
    if (negate) std::transform(values.begin(), values.end(), values.begin(), std::negate<>());
  }
  return values;
}

/// Columns that lie one after the other, as rows.
template <class Value>
std::vector<Value> transposed(const std::vector<Value>& by_column, int depth, int cols) {
  std::vector<Value> b(by_column.size());
  for (int col = 0; col < cols; ++col) {
    for (int k = 0; k < depth; ++k)
      b[static_cast<std::size_t>(k * cols + col)] = by_column[static_cast<std::size_t>(col * depth + k)];
  }
  return b;
}

/// Sums of whole numbers, whose bits stand in place of fp32's. They wrap, or stop at the ends.
void multiply_whole(const Product& product, const ReadChunk& read, std::vector<float>& sums) {
  const auto a = numbers<std::int32_t>(product.a_type, a_rows(product, read), false);
  const int depth = product.depth(), cols = product.cols;
  const auto b = transposed(numbers<std::int32_t>(product.b_type, b_rows(product, read), false), depth, cols);
  for (int row = 0; row < kWarpRows; ++row) {
    for (int col = 0; col < cols; ++col) {
      float& place = sums[static_cast<std::size_t>(row * cols + col)];
      std::int64_t sum = product.accumulate ? std::bit_cast<std::int32_t>(place) : 0;
      for (int k = 0; k < depth; ++k)
        sum += a[static_cast<std::size_t>(row * depth + k)] * b[static_cast<std::size_t>(k * cols + col)];
      place = std::bit_cast<float>(
          static_cast<std::uint32_t>(Packed<ptx::Type::s32>::pack(sum, product.saturates)));
    }
  }
}

void multiply(const Product& product, const ReadChunk& read, std::vector<float>& sums) {
  if (product.is_whole()) return multiply_whole(product, read, sums);
  const auto a = numbers<float>(product.a_type, a_rows(product, read), product.negate_a);
  const auto b = transposed(numbers<float>(product.b_type, b_rows(product, read), product.negate_b),
                            product.depth(), product.cols);
  if (!product.accumulate) std::ranges::fill(sums, 0.0f);
  const auto type = float_type(product.a_type);
  add_products(type ? sum_rule(*type) : tf32_sum_rule(), a.data(), b.data(), sums.data(), kWarpRows,
               product.cols);
  if (product.format == ResultFormat::halves) {
    for (float& sum : sums) sum = fp16_to_fp32(fp32_to_fp16(sum));
  }
}

std::vector<std::uint32_t> threads_of(const Warp& warp) {
  std::vector<std::uint32_t> threads(ptx::kLanes);
  std::iota(threads.begin(), threads.end(), thread_of(warp, 0));
  return threads;
}
std::uint32_t products_agent(Warp& warp) {
  return warp.cta.order->agent("the products of warp " + std::to_string(warp.index));
}

/// @throws Fault where the CTA has not all threads of the warpgroup
void require_warpgroup(const Warp& warp) {
  require_whole_warp(warp);
  constexpr std::uint32_t kWarps = 4;
  if (warp.cta.run.launch.block.count() < (warp.index / kWarps + 1) * kWarps * ptx::kLanes) {
    throw Fault("all 128 threads of a warpgroup take part, and some are not there");
  }
}

Outcome issue_product(Warp& warp, const ptx::Instruction& instruction) {
  require_warpgroup(warp);
  Product product = decode(warp, instruction);
  const std::uint64_t group = state_of(warp).product_groups;
  auto result = state_of(warp).results.take(warp, instruction.operands[0], product.format, group);
  Cta& cta = warp.cta;
  const auto check = [&](std::uint32_t address, std::byte*) {
    if (address >> kRankShift != 0) throw Fault("a matrix descriptor leads beyond shared memory");
    cta.shared_bytes(address, kChunkBytes);
    state_of(cta).proxy.check(thread_of(warp, 0), address, kChunkBytes, "read");
  };
  if (!product.a_in_registers) a_rows(product, check);
  b_rows(product, check);

  HappensBefore::Clocks issued;
  std::uint32_t agent = 0;
  if (cta.order) {
    issued = cta.order->issue(threads_of(warp));
    agent = products_agent(warp);
  }
  AsyncOperation operation;
  operation.kind = AsyncKind::wgmma;
  operation.owner = warp.index;
  operation.in_order = true;
  operation.effect = [&cta, product = std::move(product), result = std::move(result),
                      issued = std::move(issued), agent, clock = static_cast<std::uint32_t>(group) + 1,
                      line = instruction.line] {
    multiply(
        product,
        [&](std::uint32_t address, std::byte* target) {
          std::memcpy(target, cta.shared_bytes(address, kChunkBytes), kChunkBytes);
          if (cta.order) cta.order->read(agent, clock, issued, address, kChunkBytes, line);
        },
        result->sums);
  };
  issue(cta, instruction, std::move(operation));
  return Outcome::next;
}

Outcome commit_products(Warp& warp, const ptx::Instruction&) {
  warp.cta.async.commit(AsyncKind::wgmma, warp.index);
  ++state_of(warp).product_groups;
  return Outcome::next;
}

Outcome wait_for_products(Warp& warp, const ptx::Instruction& instruction) {
  const auto left = static_cast<unsigned>(warp.value(instruction.operands[0], warp.leader()));
  warp.cta.async.wait(AsyncKind::wgmma, warp.index, left);
  WarpState& state = state_of(warp);
  if (state.product_groups <= left) return Outcome::next;
  const std::uint64_t done = state.product_groups - left;  // groups below
  state.results.give_back(warp, state_of(warp.cta).result_copies, done);
  if (warp.cta.order) {
    const std::uint32_t agent = products_agent(warp);
    for (const std::uint32_t thread : threads_of(warp)) {
      warp.cta.order->await(thread, agent, static_cast<std::uint32_t>(done));
    }
  }
  return Outcome::next;
}

/// The shape m64nNkK: K is 32 bytes deep, and N as wide as the result's registers say.
void check_shape(const ptx::Instruction& instruction) {
  const int cols = result_columns(instruction);
  const int depth = kProductDepthBytes / element_bytes_of(instruction.types[1]);
  if (cols < 8 || cols > 256 || cols % 8 != 0 ||
      !instruction.has("m64n" + std::to_string(cols) + "k" + std::to_string(depth))) {
    throw std::runtime_error("the result's registers are not those of the shape");
  }
  register_list(instruction.operands[0], instruction.operands[0].elements.size(), 4);
}

/// Whether D may be of this type where A and B are of those.
bool are_known(ptx::Type d, ptx::Type a, ptx::Type b) {
  if (is_whole(a)) return d == ptx::Type::s32 && is_whole(b) && a != d && b != d;
  const bool bytes = element_bytes_of(a) == 1 && element_bytes_of(b) == 1 && !is_whole(b);
  return (d == ptx::Type::f32 && (a == b || bytes)) || (d == ptx::Type::f16 && (bytes || (a == b && a == d)));
}

Execution select_product(const ptx::Instruction& instruction) {
  const auto& operands = instruction.operands;
  if (instruction.types.size() != 3 || operands.empty() ||
      !are_known(instruction.types[0], instruction.types[1], instruction.types[2])) {
    throw std::runtime_error("wgmma of these types is not known");
  }
  is_whole(instruction.types[1]) ? operand_count(instruction, 4, 4) : operand_count(instruction, 6, 8);
  check_shape(instruction);
  if (operands[1].kind == ptx::Operand::Kind::vector) {
    register_list(operands[1], 4, 4);
  } else if (operands[1].bytes != 8) {
    throw std::runtime_error("a matrix descriptor of 64 bits expected");
  }
  if (operands[2].bytes != 8) throw std::runtime_error("a matrix descriptor of 64 bits expected");
  const bool is_predicate = operands[3].kind == ptx::Operand::Kind::reg && operands[3].bytes == 0;
  if (!is_predicate && operands[3].kind != ptx::Operand::Kind::constant) unknown_form();
  for (std::size_t i = 4; i < operands.size(); ++i) {
    if (operands[i].kind != ptx::Operand::Kind::constant) unknown_form();
  }
  return {issue_product, Converge::warp};
}

}  // namespace

void add_wgmma_handlers(HandlerTable& table) {
  table.add("wgmma.mma_async", select_product);
  // Registers are taken at the issue: what a missing fence would leave open does not show here.
  table.add("wgmma.fence", {simply<Outcome::next>, Converge::warp});
  table.add("wgmma.commit_group", {commit_products, Converge::warp});
  table.add("wgmma.wait_group", {wait_for_products, Converge::warp}, "v");
}

}  // namespace tilescope::gpu::emulator
