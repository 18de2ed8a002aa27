// Tests how the parts of a forward, such as attention and MLP, are grouped so that the server's web page shows repeated
// parts once. Catches: repeated layers that are not recognised; repetitions that are found where there are none; and
// parts that are in no group or in two groups.
#include "tessera/server/work/part_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns a part for each letter. The letter is the name of the part's only operator. '|' makes a split op.
std::vector<Part> parts_of(std::string_view letters) {
  std::vector<Part> parts;
  for (const char letter : letters) {
    Part part;
    part.kind = letter == '|' ? Part::Kind::kSplitOp : Part::Kind::kPiece;
    part.name = "part " + std::to_string(parts.size());
    part.graph.nodes.push_back({.op = std::string(1, letter)});
    parts.push_back(std::move(part));
  }
  return parts;
}
std::vector<PartGroup> groups_of(std::string_view letters) { return group_parts(parts_of(letters)); }

TEST(PartGroups, RepeatedLayersAreListedOnce) {
  EXPECT_THAT(groups_of("a|b|b|b|b|c"), ElementsAre(PartGroup{0, 1, 1}, PartGroup{1, 2, 4}, PartGroup{9, 2, 1}));
}

TEST(PartGroups, PartsWithoutRepetitionAreOneGroup) {
  EXPECT_THAT(groups_of(""), IsEmpty());
  EXPECT_THAT(groups_of("a"), ElementsAre(PartGroup{0, 1, 1}));
  EXPECT_THAT(groups_of("a|b"), ElementsAre(PartGroup{0, 3, 1}));
}

TEST(PartGroups, AlternatingLayersRepeatAsPairs) {
  EXPECT_THAT(groups_of("a|b|c|b|c|b|cd"), ElementsAre(PartGroup{0, 1, 1}, PartGroup{1, 4, 3}, PartGroup{13, 1, 1}));
}

TEST(PartGroups, ChoosesTheShortestOfEqualRepetitions) {
  EXPECT_THAT(groups_of("bbbb"), ElementsAre(PartGroup{0, 1, 4}));
}

TEST(PartGroups, KindAndOutputsDistinguishParts) {
  std::vector<Part> parts = parts_of("bbb");
  parts[1].kind = Part::Kind::kSplitOp;
  EXPECT_THAT(group_parts(parts), ElementsAre(PartGroup{0, 3, 1}));
  parts = parts_of("bb");
  parts[1].graph.values.push_back({.name = "out"});
  parts[1].graph.outputs.push_back(ir::ValueId(0));
  EXPECT_THAT(group_parts(parts), ElementsAre(PartGroup{0, 2, 1}));
}

TEST(PartGroups, GroupsHaveEveryPartOnceAndInOrder) {
  for (const std::string_view letters : {"a|b|b|b|c", "abcabcabd", "aabbaabb", "ab|ab|abab", "|||a|||a"}) {
    std::size_t next = 0;
    for (const PartGroup& group : groups_of(letters)) {
      EXPECT_EQ(group.first, next) << letters;
      for (std::size_t i = group.length; i < group.length * group.repeats; ++i) {
        EXPECT_EQ(letters[group.first + i], letters[group.first + i - group.length]) << letters;
      }
      next += group.length * group.repeats;
    }
    EXPECT_EQ(next, letters.size());
  }
}

}  // namespace
}  // namespace tessera
