// Catches: counters of a server's drafts that are read from the wrong fields; counts of a load that include drafts from
// before the load.
#include "tessera/load/served_drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::optional<ServedDrafts> read(const char* text) { return drafts_of(*Json::parse(text, "test")); }

TEST(ServedDrafts, CountersAreThoseOfTheLoadAlone) {
  const std::optional<ServedDrafts> before =
      read(R"({"stats": {"drafts": {"steps": 2, "drafted": 4, "kept": 3, "drafted_at": [2, 2], "kept_at": [2, 1]}}})");
  const std::optional<ServedDrafts> after = read(
      R"({"stats": {"drafts": {"steps": 6, "drafted": 15, "kept": 9, "drafted_at": [6, 6, 3], "kept_at": [5, 3, 1]}}})");
  ASSERT_TRUE(before.has_value() && after.has_value());
  const ServedDrafts load = after->since(*before);
  EXPECT_EQ(load.steps, 4);
  EXPECT_EQ(load.drafted, 11);
  EXPECT_EQ(load.kept, 6);
  EXPECT_THAT(load.drafted_at, ElementsAre(4, 4, 3));
  EXPECT_THAT(load.kept_at, ElementsAre(3, 2, 1));
  EXPECT_DOUBLE_EQ(load.mean_length(), 2.5);
  EXPECT_EQ(ServedDrafts{}.mean_length(), 0);
}

TEST(ServedDrafts, OtherServersTellNothing) {
  for (const char* other : {"{}", "[]", R"({"stats": 3})", R"({"stats": {"drafts": {}}})",
                            R"({"internal_states": [{"avg_spec_accept_length": 2.5}]})"})
    EXPECT_FALSE(read(other).has_value()) << other;
}

}  // namespace
}  // namespace tessera
