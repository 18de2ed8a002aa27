// Catches: an input bound at another bucket's place, and a name that was never added taken for address 0 of memory.
#include "tessera/piecewise/external_values.h"

#include <gtest/gtest.h>

#include <array>

namespace tessera {
namespace {

ir::Bucket tokens(std::int64_t count) {
  ir::Bucket bucket;
  bucket[ir::Symbol::kTokens] = count;
  return bucket;
}

TEST(ExternalValues, FindsFixedAddressesAndThoseOfABucket) {
  std::array<std::byte, 64> memory{};
  ExternalValues externals;
  externals.add("weight", memory.data());
  externals.add("packed", [&](const ir::Bucket& bucket) { return memory.data() + bucket[ir::Symbol::kTokens]; });
  EXPECT_EQ(externals.find("weight", tokens(4)), memory.data());
  EXPECT_EQ(externals.find("weight", tokens(8)), memory.data());
  EXPECT_EQ(externals.find("packed", tokens(4)), memory.data() + 4);
  EXPECT_EQ(externals.find("packed", tokens(8)), memory.data() + 8);
  EXPECT_EQ(externals.find("other", tokens(4)), nullptr);
}

TEST(ExternalValues, AddingANameAgainReplacesItsAddress) {
  std::array<std::byte, 64> memory{};
  ExternalValues externals;
  externals.add("x", memory.data());
  externals.add("x", memory.data() + 16);
  EXPECT_EQ(externals.find("x", tokens(1)), memory.data() + 16);
}

}  // namespace
}  // namespace tessera
