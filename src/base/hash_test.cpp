// Catches: a key that changes between runs or machines, or that confuses adjacent fields.
#include "tessera/base/hash.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

Hash128 of(std::initializer_list<std::string_view> parts) {
  Hasher h;
  for (auto p : parts) h.add(p);
  return h.finish();
}

TEST(Hash, FieldBoundariesChangeTheHash) {
  EXPECT_EQ(of({"ab", "c"}), of({"ab", "c"}));
  EXPECT_NE(of({"ab", "c"}), of({"a", "bc"}));
  EXPECT_NE(of({"", "a"}), of({"a", ""}));
  EXPECT_NE(of({"a"}), of({std::string_view("a\0", 2)}));
}

TEST(Hash, ValueIsPinned) { EXPECT_EQ(of({"tessera"}).hex(), "52da2ee836d13c7ff59dddf0ea0991f4"); }

TEST(Hash, NoCollisionsAmongSmallInputs) {
  std::set<Hash128> seen;
  for (int i = 0; i < 100000; ++i) {
    Hasher h;
    h.add(i);
    EXPECT_TRUE(seen.insert(h.finish()).second) << i;
  }
}

}  // namespace
}  // namespace tessera
