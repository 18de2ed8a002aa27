// Catches: a batch that is wrongly classified as a decode; and a request with drafts that is treated as a prompt.
#include <gtest/gtest.h>

#include "tessera/runner/dispatch/dispatch.h"

namespace tessera {
namespace {

TEST(BatchShape, DescribesTheBatchsRows) {
  const DispatchTable table{.prefill_sizes = {4, 8}, .decode_sizes = {1, 2, 6}};
  ForwardBatch batch;
  batch.input_ids = {TokenId(1), TokenId(2)};
  batch.query_lens = {1, 1};
  batch.wanted_rows = {0, 1};
  EXPECT_TRUE(shape_of(batch).all_rows_wanted);
  EXPECT_FALSE(shape_of(batch).several_rows_each);
  EXPECT_FALSE(shape_of(batch).force_eager);
  EXPECT_TRUE(shape_of(batch, true).force_eager);
  batch.wanted_rows = {1, 0};
  EXPECT_FALSE(shape_of(batch).all_rows_wanted) << "in another order";
  batch.wanted_rows = {0};
  EXPECT_FALSE(shape_of(batch).all_rows_wanted) << "not of all";
  batch.wanted_rows = {0, 1};
  batch.query_lens = {2};
  EXPECT_TRUE(shape_of(batch).all_rows_wanted) << "two tokens of one request";
  EXPECT_TRUE(shape_of(batch).several_rows_each);
  EXPECT_EQ(shape_of(batch).tokens, 2);
  EXPECT_EQ(shape_of(batch).requests, 1);
  EXPECT_EQ(dispatch(shape_of(batch), table).runner, RunnerKind::kPrefill);
  EXPECT_FALSE(shape_of(batch).decodes);
  batch.draft_lens = {1};
  EXPECT_TRUE(shape_of(batch).decodes) << "the second token is a draft";
  EXPECT_EQ(dispatch(shape_of(batch), table).runner, RunnerKind::kDecode);
  batch.input_ids.emplace_back(3);
  batch.wanted_rows = {0, 1, 2};
  batch.query_lens = {1, 2};
  batch.draft_lens = {0, 0};
  EXPECT_FALSE(shape_of(batch).decodes) << "one request has two tokens, none of them a draft";
  EXPECT_FALSE(shape_of(batch).several_rows_each) << "one has a single row";
  batch.input_ids.emplace_back(4);
  batch.query_lens = {2, 2};
  EXPECT_TRUE(shape_of(batch).several_rows_each);
  batch.draft_lens = {1, 0};
  EXPECT_FALSE(shape_of(batch).decodes) << "the second request has a prompt";
  EXPECT_FALSE(shape_of(batch).several_rows_each) << "drafts are planned as single rows";
}

}  // namespace
}  // namespace tessera
