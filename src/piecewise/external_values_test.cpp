// Catches: a value that gets the address for another bucket (another padded size of the batch); and an unknown name for
// which an address is returned.
#include "tessera/piecewise/external_values.h"

#include <gtest/gtest.h>

#include <array>

namespace tessera {
namespace {

ir::Bucket bucket_of(std::int64_t count) {
  ir::Bucket bucket;
  bucket[ir::Symbol::kTokens] = count;
  return bucket;
}

TEST(ExternalValues, FindsFixedAddressesAndThoseOfABucket) {
  std::array<std::byte, 64> bytes{};
  const DeviceAddress memory{bytes.data()};
  ExternalValues externals;
  externals.add("weight", memory);
  externals.add("packed", [&](const ir::Bucket& bucket) { return memory + bucket[ir::Symbol::kTokens]; });
  EXPECT_EQ(externals.find("weight", bucket_of(4)), memory);
  EXPECT_EQ(externals.find("weight", bucket_of(8)), memory);
  EXPECT_EQ(externals.find("packed", bucket_of(4)), memory + 4);
  EXPECT_EQ(externals.find("packed", bucket_of(8)), memory + 8);
  EXPECT_FALSE(externals.find("other", bucket_of(4)));
}

TEST(ExternalValues, AddingANameAgainReplacesItsAddress) {
  std::array<std::byte, 64> bytes{};
  const DeviceAddress memory{bytes.data()};
  ExternalValues externals;
  externals.add("x", memory);
  externals.add("x", memory + 16);
  EXPECT_EQ(externals.find("x", bucket_of(1)), memory + 16);
}

}  // namespace
}  // namespace tessera
