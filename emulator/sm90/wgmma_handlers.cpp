// SPDX-License-Identifier: Apache-2.0
// wgmma: each warp of the warpgroup multiplies its 16 rows. Shared operands are read at a time between the
// issue and a wait that covers it.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "cpu_ref/numeric/numeric.hpp"
#include "emulator/machine/address_space.hpp"
#include "emulator/machine/happens_before.hpp"
#include "emulator/machine/instructions/select.hpp"
#include "emulator/sm90/handlers.hpp"
#include "emulator/sm90/state.hpp"
#include "emulator/sm90/wgmma_operand.hpp"
#include "emulator/sm90/wgmma_sums.hpp"
#include "gpu/primitives/sm90/byte_layout.hpp"
#include "gpu/primitives/sm90/fragments.hpp"

namespace tilescope::gpu::emulator {
namespace {

ElementType element_type(ptx::Type type) {
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
      throw std::runtime_error("wgmma of a type that is not known");
  }
}

/// One instruction of one warp, with all that it takes from registers.
struct Product {
  ElementType type{};
  int cols = 0;
  Major major_a = Major::k, major_b = Major::k;
  bool a_in_registers = false, negate_a = false, negate_b = false, accumulate = false;
  int first_row = 0;  // of A, in its descriptor
  std::uint64_t a_descriptor = 0, b_descriptor = 0;
  std::vector<std::byte> a_rows;  // from registers

  int element_bytes() const { return type == ElementType::fp16 || type == ElementType::bf16 ? 2 : 1; }
  int depth() const { return kProductDepthBytes / element_bytes(); }
};

/// The left operand's registers as 16 rows.
std::vector<std::byte> rows_of_fragments(const Warp& warp, const ptx::Operand& fragments, int element_bytes) {
  std::vector<std::byte> rows(kWarpRows * kProductDepthBytes);
  for (int index = 0; index < 4; ++index) {
    const std::uint32_t* values =
        warp.read<std::uint32_t>(fragments.elements[static_cast<std::size_t>(index)]);
    for (int lane = 0; lane < ptx::kLanes; ++lane) {
      const sm90::Entry entry = element_bytes == 2 ? sm90::left_operand_entry(lane, index, 0)
                                                   : sm90::left_byte_entry(lane, index, 0);
      std::memcpy(&rows[static_cast<std::size_t>(entry.row * kProductDepthBytes + entry.col * element_bytes)],
                  &values[lane], 4);
    }
  }
  return rows;
}

Product decode(const Warp& warp, const ptx::Instruction& instruction) {
  const std::vector<ptx::Operand>& operands = instruction.operands;
  const int lane = warp.leader();
  const auto flag = [&](std::size_t index) { return warp.value(operands[index], lane) == 1; };
  Product product;
  product.type = element_type(instruction.types[1]);
  product.cols = static_cast<int>(2 * operands[0].elements.size());
  product.a_in_registers = operands[1].kind == ptx::Operand::Kind::vector;
  product.first_row = kWarpRows * static_cast<int>(warp.index % 4);
  if (product.a_in_registers) {
    product.a_rows = rows_of_fragments(warp, operands[1], product.element_bytes());
  } else {
    product.a_descriptor = warp.value(operands[1], lane);
  }
  product.b_descriptor = warp.value(operands[2], lane);
  product.accumulate = warp.predicate(operands[3]) != 0;
  product.negate_a = !flag(4);
  product.negate_b = !flag(5);
  std::size_t next = 6;
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

std::vector<float> widened(const Product& product, const std::vector<std::byte>& rows, bool negate) {
  std::vector<float> values(rows.size() / static_cast<std::size_t>(product.element_bytes()));
  widen(product.type, rows.data(), values.data(), static_cast<std::int64_t>(values.size()));
  if (negate) std::transform(values.begin(), values.end(), values.begin(), std::negate<>());
  return values;
}

void multiply(const Product& product, const ReadChunk& read, std::vector<float>& sums) {
  const std::vector<float> a = widened(product, a_rows(product, read), product.negate_a);
  const std::vector<float> b_by_row = widened(product, b_rows(product, read), product.negate_b);
  const int depth = product.depth(), cols = product.cols;
  std::vector<float> b(b_by_row.size());
  for (int col = 0; col < cols; ++col) {
    for (int k = 0; k < depth; ++k) {
      b[static_cast<std::size_t>(k * cols + col)] = b_by_row[static_cast<std::size_t>(col * depth + k)];
    }
  }
  if (!product.accumulate) std::fill(sums.begin(), sums.end(), 0.0f);
  add_products(sum_rule(product.type), a.data(), b.data(), sums.data(), kWarpRows, cols);
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
  auto result = state_of(warp).results.take(warp, instruction.operands[0], group);
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
  const std::size_t cols = 2 * instruction.operands[0].elements.size();
  const int depth = is_half(instruction.types[1]) ? 16 : 32;
  if (cols < 8 || cols > 256 || cols % 8 != 0 ||
      !instruction.has("m64n" + std::to_string(cols) + "k" + std::to_string(depth))) {
    throw std::runtime_error("the result's registers are not those of the shape");
  }
  register_list(instruction.operands[0], cols / 2, 4);
}

Execution select_product(const ptx::Instruction& instruction) {
  const auto& operands = instruction.operands;
  if (instruction.types.size() != 3 || instruction.types[0] != ptx::Type::f32 ||
      instruction.types[1] != instruction.types[2]) {
    throw std::runtime_error("wgmma of these types is not known");
  }
  element_type(instruction.types[1]);
  operand_count(instruction, 6, 8);
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
  table.add("wgmma.fence", [](const ptx::Instruction&) -> Execution {
    return {[](Warp&, const ptx::Instruction&) { return Outcome::next; }, Converge::warp};
  });
  table.add("wgmma.commit_group", [](const ptx::Instruction&) -> Execution {
    return {commit_products, Converge::warp};
  });
  table.add("wgmma.wait_group", [](const ptx::Instruction&) -> Execution {
    return {wait_for_products, Converge::warp};
  });
}

}  // namespace tilescope::gpu::emulator
