// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator::ptx {
namespace {

using Kind = Operand::Kind;

const std::string kHeader = ".version 9.0\n.target sm_90a\n.address_size 64\n";

Module kernel_of(const std::string& body) {
  return parse(
      kHeader +
      ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<9>;\n" +
      ".reg .b64 %rd<9>;\n" + body + "}\n");
}

TEST_CASE("emulator: parameters, shared memory and bounds of a kernel are laid out") {
  const Module module = parse(kHeader + R"(
/*/ .globl k */
.extern .shared .align 128 .b8 dynamic[];
.global .align 4 .b8 table[8] = {1, 2, 255};
.const .u32 seven = 7;
.visible .entry k(
  .param .u32 k_param_0,
  .param .align 64 .b8 k_param_1[72] /* a
  comment of two lines */
)
.maxntid 96, 2, 1
.minnctapersm 1
{
  .reg .f32 %f<3>;
  .shared .align 4 .b8 own[20];
  .local .align 8 .b8 depot[24];
  ret;
}
)");
  CHECK(module.target == "sm_90a");
  REQUIRE(module.variables.size() == 2);
  CHECK(static_cast<int>(module.variables[0].data.get()[2]) == 255);
  CHECK(static_cast<int>(module.variables[0].data.get()[3]) == 0);
  std::uint32_t seven = 0;
  std::memcpy(&seven, module.variables[1].data.get(), 4);
  CHECK(seven == 7);
  const Kernel* const kernel = module.find("k");
  REQUIRE(kernel);
  CHECK(module.find("l") == nullptr);
  CHECK(kernel->parameters[1].offset == 64);
  CHECK(kernel->parameter_bytes == 136);
  CHECK(kernel->max_threads == 192);
  CHECK(kernel->static_shared_end == kSharedBegin + 20);
  CHECK(kernel->dynamic_shared_begin == kSharedBegin + 128);
  CHECK(kernel->local_bytes == 24);
  CHECK(kernel->instructions.size() == 1);
}

TEST_CASE("emulator: operands of all kinds are read") {
  const Module module = kernel_of(R"(
start:
  mov.u32 %r1, -5;
  ld.global.v2.u32 {%r2, _}, [%rd1+-8];
  @!%p1 bra done;
  shfl.sync.bfly.b32 %r3|%p2, %r2, 1, 31, -1;
  cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];
  mov.f32 %r4, 0f3F800000;
  mov.u32 %r5, %tid.x;
  bra.uni start;
done:
  ret;
)");
  const auto& code = module.kernels[0]->instructions;
  REQUIRE(code.size() == 9);
  CHECK(code[0].operands[1].value == -5);
  CHECK(code[0].line == 12);
  CHECK(code[0].text == "mov.u32 %r1, -5;");
  CHECK(code[1].operands[0].kind == Kind::vector);
  CHECK(code[1].operands[0].elements[1].kind == Kind::none);
  CHECK(code[1].operands[1].value == -8);
  CHECK(code[1].operands[1].elements[0].bytes == 8);
  CHECK(code[2].guard.kind == Kind::reg);
  CHECK(code[2].guard.negated);
  CHECK(code[2].operands[0].offset == 8);
  CHECK(code[3].operands[0].elements[1].bytes == 0);
  CHECK(code[4].modifiers[5] == "shared::cta");
  CHECK(code[4].operands[0].elements[1].elements.size() == 2);
  CHECK(code[5].operands[1].value == 0x3f800000);
  CHECK(code[6].operands[1].kind == Kind::reg);
  CHECK(module.kernels[0]->specials[0].name == "tid.x");
  CHECK(code[7].operands[0].offset == 0);
}

TEST_CASE("emulator: names of a block are its own, and its labels") {
  const Module module = kernel_of(R"(
  { .reg .pred p; .reg .b32 %r1;
    again: setp.eq.u32 p, %r1, 0;
    @p bra again; }
  { .reg .pred p;
    again: setp.eq.u32 p, %r1, 0;
    @p bra again; @p bra out; }
out:
  ret;
)");
  const auto& code = module.kernels[0]->instructions;
  CHECK(code[1].operands[0].offset == 0);
  CHECK(code[3].operands[0].offset == 2);
  CHECK(code[4].operands[0].offset == 5);
  CHECK(code[0].operands[1].offset !=
        code[2].operands[1].offset);  // %r1 of the block, and that of the kernel
  CHECK(code[0].operands[0].offset == code[2].operands[0].offset);  // one block after the other has the place
}

TEST_CASE("emulator: what is not known is named with its line and text") {
  const auto message = [](const std::string& body) -> std::string {
    try {
      const Module module = kernel_of(body);
      for (const Instruction& instruction : module.kernels.at(0)->instructions)
        if (!instruction.unknown.empty()) return instruction.unknown;
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return {};
  };
  CHECK(message("mov.u32 %r1, %r2;\nadd.u32 %r1, %r9, 1;\n") ==
        "PTX line 11: no such register at '%r9' in: add.u32 %r1, %r9, 1;");
  CHECK(message("mov.u32 %r1,\n\t\xc3\xa9;\n") == "PTX line 11: ';' expected at '?' in: ??;");
  CHECK(message("bra nowhere;\n").find("line 10: no such register, variable or label at 'nowhere'") !=
        std::string::npos);
  CHECK(message(".branches x;\n").find("line 10: unknown directive at '.branches'") != std::string::npos);
  CHECK(message("ld.global.u32 %r1, [%h1];\n").find("an address expected at '%h1'") != std::string::npos);
  CHECK(message("mov.u32 %r1, 12q;\n").find("a number expected at '12q'") != std::string::npos);
  CHECK(message("mov.u32 %r1, 1\n").find("';' expected at '}'") != std::string::npos);
}

TEST_CASE("emulator: what cannot be read does not hide what follows, nor another kernel") {
  const Module module = kernel_of(
      "mov.u64 %rd1, %no_such;\nbra nowhere;\nfoo {%r1, %q}, 7;\nadd.u32 %r1, %r2, 1;\nbra "
      "there;\nthere:\nret;\n");
  const auto& instructions = module.kernels.at(0)->instructions;
  REQUIRE(instructions.size() == 6);
  CHECK(instructions[0].unknown == "PTX line 10: no such register at '%no_such' in: mov.u64 %rd1, %no_such;");
  CHECK(instructions[1].unknown.starts_with("PTX line 11: no such register, variable or label at 'nowhere'"));
  CHECK(instructions[2].unknown.starts_with("PTX line 12: no such register at '%q'"));
  for (const std::size_t known : {3, 4, 5}) CHECK(instructions[known].unknown.empty());
  CHECK(instructions[4].operands.at(0).offset == 5);
}

TEST_CASE("emulator: a register and a range of registers may have one name") {
  const Module module = kernel_of("{\n.reg .b32 a;\n.reg .b16 a<2>;\nmov.b32 a, {a0, a1};\n}\nret;\n");
  const Instruction& move = module.kernels.at(0)->instructions.at(0);
  CHECK(move.unknown.empty());
  CHECK(move.operands.at(0).bytes == 4);
  CHECK(move.operands.at(1).elements.at(1).bytes == 2);
}

std::string refusal_of(const std::string& text) {
  try {
    parse(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

TEST_CASE("emulator: sizes and alignments that cannot be are refused with their line") {
  const auto refusal = [](const std::string& declaration) {
    return refusal_of(kHeader + ".entry k(.param .u64 p)\n{\n" + declaration + "\nret;\n}\n");
  };
  CHECK(refusal(".shared .align 0 .b8 y[4];").find("line 6: an alignment from 1 to 65536 expected at '0'") !=
        std::string::npos);
  CHECK(refusal(".shared .align 12 .b8 y[4];").find("no power of two") != std::string::npos);
  CHECK(refusal(".shared .b8 y[-4];").find("a length from 0") != std::string::npos);
  CHECK(refusal(".shared .b8 y[240000];").find("no room for y") != std::string::npos);
  CHECK(refusal(".local .b8 y[2147483648];").find("no room for y") != std::string::npos);
  CHECK(refusal(".reg .b32 %q<33554432>;").find("a number of registers from 1 to 524288") !=
        std::string::npos);
  CHECK(refusal(".reg .b64 %q<524288>;\n.reg .b64 %s<524288>;\n.reg .b64 %t<524288>;").find("256 MiB") !=
        std::string::npos);
  CHECK(refusal(".reg .b32 %q<0>;").find("a number of registers") != std::string::npos);
  CHECK(refusal(".shared .align 16 .b8 y[4];\n.reg .b32 %q<9>;").empty());
  CHECK(refusal_of(kHeader + ".global .b8 y[2147483648][2147483648];").find("more than 2 GiB") !=
        std::string::npos);
}

TEST_CASE("emulator: a text that ends anywhere is refused, never read beyond its end") {
  const std::string whole = kHeader + R"(
.global .align 4 .b8 table[8] = {1, 2, 255};
.visible .entry k(.param .u64 p, .param .align 8 .b8 q[16])
.maxntid 96, 2, 1
{
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  .shared .align 8 .b8 own[24];
  ld.param.u64 %rd1, [p];
  { .reg .b32 a;
    @!%p1 st.global.v2.u32 [%rd1+4], {%r1, %r2};
    mov.u32 a, own; /* words */
  }
  ret; // the end
}
)";
  CHECK(refusal_of(whole).empty());
  int refused = 0;
  for (std::size_t end = kHeader.size(); end < whole.size(); ++end) {
    refused += !refusal_of(whole.substr(0, end)).empty();
  }
  CHECK(refused > 300);
}

TEST_CASE("emulator: a statement of inline assembly is one place of the source, however many lines it has") {
  const Module module = kernel_of(R"(
  .loc 1 8 10
  // begin inline asm
  .loc 1 8 10 // softmax.py:8:10
  mov.b32 %r1, 0;
  .loc 1 9 10
  mov.b32 %r2, 0;
  // end inline asm
  // begin inline asm
  .loc 1 9 18, function_name f, inlined_at 1 20 3
  mov.b32 %r3, 0;
  .loc 1 10 18, function_name f, inlined_at 1 20 3
  mov.b32 %r4, 0;
  // end inline asm
  .loc 1 11 1
  ret;
)");
  const std::vector<Instruction>& instructions = module.find("k")->instructions;
  const int lines[] = {8, 8, 9, 9, 11};
  REQUIRE(instructions.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) CHECK(instructions[i].source.line == lines[i]);
  CHECK(instructions[3].inlined_at.at(0).line == 20);
}

}  // namespace
}  // namespace tilescope::gpu::emulator::ptx
