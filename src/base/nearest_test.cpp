// Catches: a suggestion that is not the closest name, or a suggestion although nothing is close.
#include "tessera/base/nearest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kOps[] = {"add", "add_rms_norm", "attention", "embedding", "linear", "rms_norm", "rotary"};

TEST(NearestNames, OneMistypedLetterOrASwapFindsTheName) {
  EXPECT_THAT(nearest_names("atention", kOps), ElementsAre("attention"));
  EXPECT_THAT(nearest_names("liner", kOps), ElementsAre("linear"));
  EXPECT_THAT(nearest_names("rotayr", kOps), ElementsAre("rotary"));
  EXPECT_THAT(nearest_names("Linear", kOps), ElementsAre("linear"));
}

TEST(NearestNames, NearestComesFirstUpToTheLimit) {
  constexpr std::string_view kNames[] = {"aaaaaabb", "aaaaaaab", "aaaaaaaa"};
  EXPECT_THAT(nearest_names("aaaaaaaa", kNames), ElementsAre("aaaaaaaa", "aaaaaaab", "aaaaaabb"));
  EXPECT_THAT(nearest_names("aaaaaaaa", kNames, 1), ElementsAre("aaaaaaaa"));
  EXPECT_THAT(nearest_names("aaaaaaaa", kNames, 0), IsEmpty());
}

TEST(NearestNames, APrefixFindsTheName) { EXPECT_THAT(nearest_names("embed", kOps), ElementsAre("embedding")); }

TEST(NearestNames, UnrelatedHugeAndEmptyNamesFindNothing) {
  EXPECT_THAT(nearest_names("convolution", kOps), IsEmpty());
  EXPECT_THAT(nearest_names(std::string(100000, 'x'), kOps), IsEmpty());
  EXPECT_THAT(nearest_names("", kOps), IsEmpty());
}

}  // namespace
}  // namespace tessera
