// SPDX-License-Identifier: Apache-2.0
#include "common/sha256.hpp"

#include <doctest/doctest.h>

namespace tilescope {
namespace {

// FIPS 180-4's examples, and lengths round a block's end as Python's hashlib has them.
TEST_CASE("SHA-256 of known texts") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1000, 'x')) == "44f8354494a5ba03ba1792a8d3e9c534c47a9181980fde7a3f44b06ef2ae7c7f");
}

}  // namespace
}  // namespace tilescope
