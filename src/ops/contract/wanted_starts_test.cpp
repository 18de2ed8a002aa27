// Tests the search for each request's first wanted row, the first row whose logits are wanted. Catches: a wanted row
// that is assigned to a neighbouring request; a later wanted row that is returned instead of the first; wanted rows
// that are missed because they are not in order.
#include "tessera/ops/contract/wanted_starts.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<std::int32_t> starts_of(const std::vector<std::int32_t>& query_lens,
                                    const std::vector<std::int32_t>& wanted_rows) {
  ForwardBatch batch;
  batch.query_lens = query_lens;
  batch.wanted_rows = wanted_rows;
  std::vector<std::int32_t> starts(query_lens.size(), -1);
  find_wanted_starts(batch, starts);
  return starts;
}

TEST(WantedStarts, AreTheFirstWantedRowOfEachRequest) {
  EXPECT_THAT(starts_of({}, {}), ElementsAre());
  EXPECT_THAT(starts_of({4, 1, 3}, {}), ElementsAre(4, 1, 3)) << "none is wanted";
  EXPECT_THAT(starts_of({4, 1, 3}, {3, 4, 7}), ElementsAre(3, 0, 2)) << "the last of each";
  EXPECT_THAT(starts_of({4, 1, 3}, {0, 1, 2, 3, 4, 5, 6, 7}), ElementsAre(0, 0, 0));
  EXPECT_THAT(starts_of({4, 1, 3}, {5}), ElementsAre(4, 1, 0));
}

// In a batch's wanted rows, the sampled rows come first. Then come the rows of prompts' log-probabilities. A row may
// occur twice.
TEST(WantedStarts, AreFoundInAnyOrder) {
  EXPECT_THAT(starts_of({4, 1, 3}, {3, 4, 7, 1, 2, 3, 6}), ElementsAre(1, 0, 1));
  std::mt19937 generator(3);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::int32_t> query_lens(1 + generator() % 9);
    std::vector<std::int32_t> expected;
    std::vector<std::int32_t> wanted;
    std::int32_t begin = 0;
    for (std::int32_t& length : query_lens) {
      length = static_cast<std::int32_t>(1 + generator() % 6);
      expected.push_back(length);
      for (std::int32_t row = 0; row < length; ++row) {
        if (generator() % 3 != 0) continue;
        wanted.push_back(begin + row);
        expected.back() = std::min(expected.back(), row);
      }
      begin += length;
    }
    std::shuffle(wanted.begin(), wanted.end(), generator);
    EXPECT_EQ(starts_of(query_lens, wanted), expected);
  }
}

}  // namespace
}  // namespace tessera
