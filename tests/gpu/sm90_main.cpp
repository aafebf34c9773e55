// SPDX-License-Identifier: Apache-2.0
// The tests that need a Hopper device; skipped (exit code 77) without one.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstdio>

int main(int argc, char** argv) {
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess || major != 9) {
    std::puts("skipped: no Hopper device (compute capability 9.0)");
    return 77;
  }
  doctest::Context context(argc, argv);
  return context.run();
}
