// RowRequests turns each request with drafts into requests of one row each, so that decode kernels can verify the
// drafts. Catches: rows of drafts that get the length or the pages of another row; prompts that are divided into single
// rows too; and rows of an earlier, larger batch that remain in the next batch.
#include "tessera/runner/row_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using testing::ids;
using testing::make_batch;
using testing::Rows;

TEST(RowRequests, EachDraftSeesTheRowsBeforeIt) {
  RowRequests rows;
  ForwardBatch larger = make_batch({{ids(30), 20}, {ids(9), 0}}, Rows::kAll, 2);
  larger.draft_lens = {9, 8};
  rows.of(larger);
  ForwardBatch batch = make_batch({{ids(10), 7}, {ids(5), 4}, {ids(20), 18}}, Rows::kAll, 2);
  batch.draft_lens = {2, 0, 1};
  batch.adapter_slots = {1, 1, 1, -1, 0, 0};
  const ForwardBatch& made = rows.of(batch);
  EXPECT_THAT(made.query_lens, ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(made.kv_lens, ElementsAre(8, 9, 10, 5, 19, 20));
  EXPECT_EQ(made.num_tokens(), 6);
  EXPECT_EQ(made.wanted_rows, batch.wanted_rows);
  EXPECT_THAT(made.adapter_slots, ElementsAre(1, 1, 1, -1, 0, 0));
  ASSERT_EQ(made.groups.size(), 2U);
  for (std::size_t g = 0; g < 2; ++g) {
    EXPECT_EQ(made.groups[g].slots, batch.groups[g].slots);
    ASSERT_EQ(made.groups[g].page_tables.size(), 6U);
    for (const auto& [row, request] : {std::pair(0, 0), {2, 0}, {3, 1}, {4, 2}, {5, 2}})
      EXPECT_EQ(made.groups[g].page_tables[static_cast<std::size_t>(row)].pages.data(),
                batch.groups[g].page_tables[static_cast<std::size_t>(request)].pages.data());
  }
}

TEST(RowRequests, PromptsBesideDraftsStayWhole) {
  RowRequests rows;
  ForwardBatch batch = make_batch({{ids(10), 7}, {ids(30), 12}, {ids(5), 4}}, Rows::kAll, 1);
  batch.draft_lens = {2, 0, 0};
  const ForwardBatch& made = rows.of(batch);
  EXPECT_THAT(made.query_lens, ElementsAre(1, 1, 1, 18, 1));
  EXPECT_THAT(made.kv_lens, ElementsAre(8, 9, 10, 30, 5));
  ASSERT_EQ(made.groups[0].page_tables.size(), 5U);
  EXPECT_EQ(made.groups[0].page_tables[3].pages.data(), batch.groups[0].page_tables[1].pages.data());
  EXPECT_EQ(made.groups[0].page_tables[4].pages.data(), batch.groups[0].page_tables[2].pages.data());
}

}  // namespace
}  // namespace tessera
