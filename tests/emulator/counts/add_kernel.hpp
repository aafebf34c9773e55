// SPDX-License-Identifier: Apache-2.0
// y[i * step] = x[i * step + shift] + 1 as PTX with lines of a source, and what else tests make of it.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "emulator/kernel_call.hpp"

namespace tilescope::gpu::emulator::testing {

/// A kernel of parameters px, py and pn whose body comes behind: %rd1 = x, %rd2 = y, %r9 = n, %r3 the thread,
/// %r4 its number in the grid. The body begins at line 10 of kernel.cu.
inline std::string kernel_ptx(const std::string& body, const std::string& shared = "") {
  return ".version 8.0\n.target sm_90a\n.address_size 64\n.file 1 \"/src/kernel.cu\"\n"
         ".visible .entry kernel(.param .u64 px, .param .u64 py, .param .u32 pn)\n{\n"
         ".reg .pred %p<10>;\n.reg .b32 %r<40>;\n.reg .b64 %rd<40>;\n.reg .f32 %f<20>;\n" +
         shared +
         "ld.param.u64 %rd1, [px];\nld.param.u64 %rd2, [py];\nld.param.u32 %r9, [pn];\n"
         "mov.u32 %r3, %tid.x;\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\n"
         "mad.lo.s32 %r4, %r1, %r2, %r3;\n.loc 1 10 1\n" +
         body + "ret;\n}\n";
}

/// Threads beyond n go to DONE; then y[%r4 * step] = x[%r4 * step]: the load at line 11, the store at 12.
inline std::string copy_body(int step) {
  return "setp.ge.s32 %p1, %r4, %r9;\n@%p1 bra DONE;\nmul.wide.s32 %rd3, %r4, " + std::to_string(4 * step) +
         ";\nadd.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\n.loc 1 11 1\nld.global.f32 %f1, "
         "[%rd4];\n.loc 1 12 1\nst.global.f32 [%rd5], %f1;\nDONE:\n";
}

struct CalledKernel {
  alignas(256) std::array<float, 4096> x{}, y{};
  KernelCall call{.grid = {8}, .block = {128}};
  std::size_t x_count = 4096, y_count = 4096;
  int n = 1024;
  bool uninitialised = false;  // x

  KernelResult operator()(const std::string& ptx) {
    call.arguments = {buffer_argument("x", std::span(x).first(x_count)),
                      buffer_argument("y", std::span(y).first(y_count)), scalar_argument("n", n)};
    call.arguments[0].uninitialised = uninitialised;
    return call_kernel(read_ptx(ptx), call);
  }
};

inline std::vector<Finding> findings(const KernelResult& result, FindingKind kind) {
  std::vector<Finding> found;
  std::copy_if(result.findings.begin(), result.findings.end(), std::back_inserter(found),
               [kind](const Finding& finding) { return finding.kind == kind; });
  return found;
}

}  // namespace tilescope::gpu::emulator::testing
