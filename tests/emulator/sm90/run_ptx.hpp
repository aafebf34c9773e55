// SPDX-License-Identifier: Apache-2.0
// Runs a few lines of PTX as a kernel of one parameter, %rd0, the address of `out`.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "emulator/emulator.hpp"

namespace tilescope::gpu::emulator::testing {

struct alignas(128) Words {
  std::array<std::uint32_t, 4096> words{};
};

struct PtxRun {
  std::unique_ptr<Words> storage = std::make_unique<Words>();
  std::array<std::uint32_t, 4096>& out = storage->words;
  unsigned ctas = 1, cluster = 1, threads = 128;
  std::size_t out_bytes = sizeof(Words::words);  // of the allocation that `out` is
  Options options;

  /// %r0 is the thread, %r1 the address of 32 KiB of shared memory, `barrier` the name of eight more bytes.
  /// Registers %r, %rd, %f, %h up to 99 and %p up to 9 are there.
  Report operator()(const std::string& body) {
    const std::string text =
        ".version 8.0\n.target sm_90a\n.address_size 64\n"
        ".visible .entry test(.param .u64 .ptr .align 16 test_param_0)\n{\n"
        ".reg .pred %p<10>;\n.reg .b16 %h<100>;\n.reg .b32 %r<100>;\n.reg .b64 %rd<100>;\n.reg .f32 "
        "%f<100>;\n"
        ".shared .align 1024 .b8 tile[32768];\n.shared .align 8 .b8 barrier[8];\n"
        "ld.param.u64 %rd0, [test_param_0];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, tile;\n" +
        body + "\nret;\n}\n";
    const ptx::Module module = ptx::parse(text);
    Launch launch;
    launch.kernel = module.find("test");
    launch.grid = {ctas};
    launch.block = {threads};
    launch.cluster = {cluster};
    launch.parameters.resize(8);
    const std::uint32_t* address = out.data();
    std::memcpy(launch.parameters.data(), &address, sizeof(address));
    Memory memory;
    memory.add(out.data(), out_bytes, "out");
    return run(launch, memory, options);
  }
};

}  // namespace tilescope::gpu::emulator::testing
