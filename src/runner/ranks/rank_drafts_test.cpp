// Catches: inputs for drafts that arrive changed at another rank; page tables that differ between ranks when requests
// have drafts only in some steps; and a read past the end of a message.
#include "tessera/runner/ranks/rank_drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Pack>
std::vector<std::byte> message_of(const Pack& pack) {
  std::vector<std::byte> message;
  MessageWriter writer(message, 3, 17);
  pack(writer);
  writer.finish();
  return message;
}

struct Drafting {
  PageTableNumber number = new_page_table_number();
  std::vector<PageId> pages = {};
};

// Returns a batch in which each request has one token.
ForwardBatch batch_of(const std::vector<Drafting>& requests) {
  ForwardBatch batch;
  batch.groups.resize(1);
  for (const Drafting& request : requests) {
    const auto at = static_cast<std::int32_t>(batch.input_ids.size());
    batch.input_ids.emplace_back(40 + at);
    batch.input_rows.push_back(at - 1);
    batch.positions.push_back(9);
    batch.query_lens.push_back(1);
    batch.kv_lens.push_back(10);
    batch.wanted_rows.push_back(at);
    batch.groups[0].slots.emplace_back(5 + at);
    batch.groups[0].page_tables.push_back({.pages = request.pages, .number = request.number});
  }
  return batch;
}

TEST(RankDrafts, RowsOfChangingRequestsComeAsTheyWereSent) {
  std::vector<Drafting> requests(3);
  DraftPacker packer;
  ReceivedDraftInputs received;
  for (std::int32_t step = 0; step < 12; ++step) {
    if (step % 3 == 2) requests.erase(requests.begin() + step % 2);
    if (step % 4 == 3) requests.insert(requests.begin(), Drafting());
    for (Drafting& request : requests) request.pages.emplace_back(20 + step);
    const ForwardBatch batch = batch_of(requests);
    std::vector<std::int32_t> rows(requests.size());
    std::iota(rows.begin(), rows.end(), step);
    const std::optional<std::int64_t> first_id = step % 2 == 0 ? std::nullopt : std::optional<std::int64_t>(step - 1);
    const RopeAxes axes{std::vector<std::int32_t>{step}, {step, 2}, {}};
    const std::vector<std::byte> message = message_of([&](MessageWriter& to) {
      packer.pack({.batch = batch, .rope_positions = axes, .rows = rows, .first_id = first_id}, to);
    });
    MessageReader reader = *MessageReader::open(message);
    const Status read = received.unpack(reader);
    ASSERT_TRUE(read.ok()) << read.to_string();
    const DraftInputs got = received.inputs();
    EXPECT_EQ(got.batch.input_ids, batch.input_ids);
    EXPECT_EQ(got.batch.input_rows, batch.input_rows);
    EXPECT_EQ(got.batch.groups[0].slots, batch.groups[0].slots);
    EXPECT_EQ(got.rope_positions, axes);
    EXPECT_EQ(got.first_id, first_id);
    EXPECT_TRUE(std::ranges::equal(got.rows, rows));
    ASSERT_EQ(got.batch.groups[0].page_tables.size(), requests.size());
    for (std::size_t r = 0; r < requests.size(); ++r)
      EXPECT_TRUE(std::ranges::equal(got.batch.groups[0].page_tables[r].pages, requests[r].pages)) << step << " " << r;
  }
}

TEST(RankDrafts, RowsOfTheHeadComeAsTheyWereSent) {
  const std::vector<std::int32_t> rows{4, 0, 9};
  const std::vector<std::byte> message =
      message_of([&](MessageWriter& to) { pack_draft_rows({.rows = rows, .first_id = 6}, to); });
  MessageReader reader = *MessageReader::open(message);
  const DraftRows got = *unpack_draft_rows(reader);
  EXPECT_THAT(got.rows, ElementsAre(4, 0, 9));
  EXPECT_EQ(got.first_id, 6);
}

TEST(RankDrafts, BrokenMessagesAreRefused) {
  const std::vector<std::byte> negative = message_of([](MessageWriter& to) {
    to.word(-1);
    to.list(std::vector<std::int32_t>{1});
  });
  MessageReader head = *MessageReader::open(negative);
  EXPECT_THAT(unpack_draft_rows(head).status().message(), HasSubstr("first_id"));
  const std::vector<std::byte> short_one = message_of([](MessageWriter& to) { to.word(1); });
  ReceivedDraftInputs received;
  MessageReader body = *MessageReader::open(short_one);
  EXPECT_EQ(received.unpack(body).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tessera
