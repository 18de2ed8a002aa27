// Catches: batches with contradictory lengths, rows or slots that reach a kernel; error messages that do not name the
// wrong entry.
#include "tessera/ops/contract/forward_batch.h"

#include <gmock/gmock.h>

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Request 0 extends by two tokens, with one token in the cache. Request 1 decodes its fifth token.
ForwardBatch good_batch() {
  ForwardBatch batch{.input_ids = {TokenId{7}, TokenId{8}, TokenId{9}},
                     .input_rows = {-1, -1, 0},
                     .positions = {1, 2, 4},
                     .query_lens = {2, 1},
                     .kv_lens = {3, 5},
                     .wanted_rows = {1, 2},
                     .groups = {{.slots = {SlotId{17}, SlotId{18}, SlotId{-1}}, .page_tables = {}}}};
  batch.groups[0].own({{PageId{1}}, {PageId{2}}});
  return batch;
}

TEST(ForwardBatch, AcceptsAMixedBatchAndAnEmptyOne) {
  EXPECT_EQ(good_batch().check().message(), "");
  EXPECT_EQ(ForwardBatch{}.check().message(), "");
  EXPECT_FALSE(good_batch().is_decode());
}

TEST(ForwardBatch, AcceptsEmbeddingsInPlaceOfIds) {
  ForwardBatch batch = good_batch();
  batch.input_ids = {TokenId{-1}, TokenId{-1}, TokenId{-1}};  // the third is the token that row 0 sampled
  batch.embedding_rows = {5, 3, -1};
  EXPECT_EQ(batch.check().message(), "");
}

struct BadBatch {
  const char* name;
  void (*spoil)(ForwardBatch& batch);
  const char* message;
};

class ForwardBatchRefuses : public ::testing::TestWithParam<BadBatch> {};

TEST_P(ForwardBatchRefuses, NamesTheWrongEntry) {
  ForwardBatch batch = good_batch();
  GetParam().spoil(batch);
  const Status status = batch.check();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, ForwardBatchRefuses,
    ::testing::Values(
        BadBatch{"MissingInputRow", [](ForwardBatch& b) { b.input_rows.pop_back(); }, "input_rows has 2 entries"},
        BadBatch{"MissingPosition", [](ForwardBatch& b) { b.positions.pop_back(); }, "positions has 2 entries"},
        BadBatch{"NegativeId", [](ForwardBatch& b) { b.input_ids[1] = TokenId{-3}; }, "input_ids[1] is -3"},
        BadBatch{"NoEmbedding", [](ForwardBatch& b) { b.input_ids[1] = TokenId{-1}; }, "input_ids[1] is -1"},
        BadBatch{"NegativeEmbeddingRow",
                 [](ForwardBatch& b) {
                   b.embedding_rows = {-1, -2, -1};
                 },
                 "embedding_rows[1] is -2"},
        BadBatch{"EmbeddingOfASampledToken",
                 [](ForwardBatch& b) {
                   b.embedding_rows = {-1, -1, 4};
                 },
                 "embedding_rows[2] is 4 beside row 0 of the last step"},
        BadBatch{"MissingEmbeddingRow", [](ForwardBatch& b) { b.embedding_rows = {1}; },
                 "embedding_rows has 1 entries"},
        BadBatch{"BadInputRow", [](ForwardBatch& b) { b.input_rows[0] = -2; }, "input_rows[0] is -2"},
        BadBatch{"WantedRowPastTheEnd", [](ForwardBatch& b) { b.wanted_rows[1] = 3; },
                 "wanted_rows[1] is 3, outside the 3 tokens"},
        BadBatch{"WantedRowNegative", [](ForwardBatch& b) { b.wanted_rows[0] = -1; }, "wanted_rows[0] is -1"},
        BadBatch{"MissingKvLen", [](ForwardBatch& b) { b.kv_lens.pop_back(); }, "kv_lens has 1 entries"},
        BadBatch{"MissingDraftLen", [](ForwardBatch& b) { b.draft_lens = {0}; }, "draft_lens has 1 entries"},
        BadBatch{"OnlyDrafts",
                 [](ForwardBatch& b) {
                   b.draft_lens = {b.query_lens[0], 0};
                 },
                 "draft_lens[0] is "},
        BadBatch{"MissingAcceptedDrafts", [](ForwardBatch& b) { b.accepted_drafts = {0}; },
                 "accepted_drafts has 1 entries"},
        BadBatch{"MoreAcceptedDraftsThanTokens",
                 [](ForwardBatch& b) {
                   b.accepted_drafts = {0, b.kv_lens[1]};
                 },
                 "accepted_drafts[1] is "},
        BadBatch{"EmptyQuery", [](ForwardBatch& b) { b.query_lens[1] = 0; }, "query_lens[1] is 0"},
        BadBatch{"KvShorterThanQuery", [](ForwardBatch& b) { b.kv_lens[0] = 1; }, "kv_lens[0] is 1, less than"},
        BadBatch{"TooManyQueries", [](ForwardBatch& b) { b.query_lens[1] = 2; }, "up to request 1 add up to 4"},
        BadBatch{"TooFewQueries", [](ForwardBatch& b) { b.query_lens[0] = 1, b.positions[1] = 0; }, "add up to 2"},
        BadBatch{"PositionPastTheEnd", [](ForwardBatch& b) { b.positions[2] = 5; },
                 "positions[2] is 5, outside request 1's 5 tokens"},
        BadBatch{"PositionNegative", [](ForwardBatch& b) { b.positions[0] = -1; }, "positions[0] is -1"},
        BadBatch{"MissingSlot", [](ForwardBatch& b) { b.groups[0].slots.pop_back(); },
                 "cache group 0: slots has 2 entries"},
        BadBatch{"BadSlot", [](ForwardBatch& b) { b.groups[0].slots[2] = SlotId{-2}; }, "slots[2] is -2"},
        BadBatch{"MissingPageTable", [](ForwardBatch& b) { b.groups[0].page_tables.pop_back(); },
                 "page_tables has 1 entries"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tessera
