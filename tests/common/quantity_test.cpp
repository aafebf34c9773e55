// SPDX-License-Identifier: Apache-2.0
// Numbers with the prefixes that the tool itself prints: 4k, 50MB, 32MiB, 2ms.
#include "common/quantity.hpp"

#include <doctest/doctest.h>

#include "common/number_format.hpp"

namespace tilescope {

TEST_CASE("lengths take k, M and G of 2^10, as they are printed") {
  CHECK(read_count("4096") == 4096);
  CHECK(read_count("4k") == 4096);
  CHECK(read_count("128K") == 131072);
  CHECK(read_count("1.5k") == 1536);
  CHECK(read_count("1M") == 1 << 20);
  for (const char* same : {"1m", "1Mi", "1mi", "1024k", "1024Ki"}) CHECK(read_count(same) == 1 << 20);
  CHECK(read_count("200m") == 200 << 20);
  CHECK(read_count("1g") == 1 << 30);
  CHECK(read_count("-1") == -1);
  CHECK(read_count("9223372036854775807") == 9223372036854775807);
  for (const char* bad :
       {"", "k", "4kk", "4 MB", "12e3", "1.0001k", "9223372036854775808", "nan", "1e300k", "0x10"}) {
    CAPTURE(bad);
    CHECK_FALSE(read_count(bad).has_value());
  }
  CHECK(read_count(format_length(131072)) == 131072);
}

TEST_CASE("bytes take decimal and binary prefixes, and no bare letter") {
  CHECK(read_bytes("52428800") == 52428800);
  CHECK(read_bytes("50MB") == 50'000'000);
  CHECK(read_bytes("32 MiB") == 32 << 20);
  CHECK(read_bytes("1.5GB") == 1'500'000'000);
  CHECK(read_bytes(format_capacity(60 << 20)) == 60 << 20);
  for (const char* bad : {"50M", "1.5B", "MB", "50 mb", "1e30TB"}) {
    CAPTURE(bad);
    CHECK_FALSE(read_bytes(bad).has_value());
  }
}

TEST_CASE("amounts know their unit") {
  CHECK(read_quantity("1e-5")->value == 1e-5);
  CHECK(read_quantity("1e-5")->unit == "");
  CHECK(read_quantity("1GB")->value == 1e9);
  CHECK(read_quantity("1GB")->unit == "B");
  CHECK(read_quantity("2ms")->value == doctest::Approx(2e-3));
  CHECK(read_quantity("2ms")->unit == "s");
  CHECK_FALSE(read_quantity("2 furlongs").has_value());
  CHECK_FALSE(read_quantity("5 ").has_value());
}

}  // namespace tilescope
