// Catches: a forward that arrives changed at another rank; page tables that differ between ranks after many steps; a
// read past the end of a message; and memory that is allocated in every step.
#include "tessera/runner/ranks/rank_forward.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tessera {
namespace {

using ::testing::HasSubstr;

ForwardBatch batch_of_groups(std::size_t groups) {
  ForwardBatch batch;
  batch.groups.resize(groups);
  return batch;
}

// Makes forwards of random sequences, which arrive, grow, lose pages outside their window, and end. The forwards use
// every kind of input that a message may carry.
class RandomForwards {
 public:
  explicit RandomForwards(std::uint32_t seed) : random_(seed) {}

  const ForwardInputs& next() {
    for (std::vector<Sequence>& group : groups_) {
      std::erase_if(group, [&](const Sequence&) { return draw(8) == 0; });
      for (Sequence& sequence : group) grow(sequence);
      while (draw(3) == 0) group.insert(group.begin() + draw(std::ssize(group) + 1), grown());
    }
    requests_ = groups_[0].size();
    groups_[1].resize(std::min(groups_[1].size(), requests_));
    while (groups_[1].size() < requests_) groups_[1].push_back(grown());
    fill();
    return *inputs_;
  }
  const Decision& decision() const { return decision_; }
  std::int64_t draw(std::int64_t below) {
    return std::uniform_int_distribution<std::int64_t>(0, std::max<std::int64_t>(below, 1) - 1)(random_);
  }

 private:
  struct Sequence {
    PageTableNumber number{};
    std::int64_t first_held = 0;
    std::vector<PageId> pages;
  };
  void grow(Sequence& sequence) {
    if (draw(6) == 0) sequence.number = new_page_table_number();
    if (draw(12) == 0) sequence.number = {};
    for (std::int64_t n = draw(3); n > 0; --n) sequence.pages.emplace_back(static_cast<std::int32_t>(1 + draw(999)));
    const std::int64_t left = draw(4) == 0 ? draw(std::ssize(sequence.pages) + 1) : 0;
    for (; sequence.first_held < left; ++sequence.first_held)
      sequence.pages[static_cast<std::size_t>(sequence.first_held)] = PageId(0);
  }
  Sequence grown() {
    Sequence made{.number = new_page_table_number(), .pages = {}};
    for (int i = 0; i < 4; ++i) grow(made);
    return made;
  }
  std::vector<std::int32_t> numbers(std::int64_t count) {
    std::vector<std::int32_t> made;
    for (; count > 0; --count) made.push_back(static_cast<std::int32_t>(draw(1000)) - 1);
    return made;
  }
  std::vector<TokenId> tokens(std::int64_t count) {
    std::vector<TokenId> made;
    for (const std::int32_t id : numbers(count)) made.emplace_back(id);
    return made;
  }
  std::vector<float> floats(std::int64_t count) {
    std::vector<float> made;
    for (; count > 0; --count) made.push_back(static_cast<float>(draw(1000)) / 7);
    return made;
  }
  void fill_groups() {
    for (std::size_t g = 0; g < 2; ++g) {
      batch_.groups[g].slots.clear();
      for (const std::int32_t slot : numbers(draw(9))) batch_.groups[g].slots.emplace_back(slot);
      batch_.groups[g].page_tables.clear();
      for (const Sequence& s : groups_[g])
        batch_.groups[g].page_tables.push_back({.pages = s.pages, .first_held = s.first_held, .number = s.number});
    }
  }
  void fill() {
    const auto requests = static_cast<std::int64_t>(requests_);
    batch_.input_ids = tokens(draw(9));
    batch_.input_rows = numbers(draw(9));
    batch_.positions = numbers(draw(9));
    batch_.query_lens = numbers(requests);
    batch_.kv_lens = numbers(requests);
    batch_.wanted_rows = numbers(draw(5));
    batch_.embedding_rows = numbers(draw(2) * 5);
    batch_.draft_lens = numbers(draw(2) * requests);
    batch_.accepted_drafts = numbers(draw(2) * requests);
    batch_.adapter_slots = numbers(draw(2) * 4);
    batch_.slot_copies.clear();
    for (std::int64_t n = draw(3); n > 0; --n)
      batch_.slot_copies.push_back({.group = static_cast<std::size_t>(draw(2)), .from = PageId(3), .to = PageId(4)});
    batch_.checkpoints.clear();
    for (std::int64_t n = draw(3); n > 0; --n)
      batch_.checkpoints.push_back(
          {.group = 1, .request = 0, .rows = static_cast<std::int32_t>(draw(9)), .slot = PageId(7)});
    values_ = floats(draw(7));
    batch_.embedding_writes.clear();
    for (std::int64_t n = draw(3); n > 0; --n) batch_.embedding_writes.push_back({.first_row = n, .values = values_});
    fill_groups();
    for (auto& axis : rope_) axis = numbers(draw(5));
    sampling_.resize(static_cast<std::size_t>(draw(4)));
    for (SampleRow& row : sampling_)
      row = {
          .temperature = 0.5F, .top_k = 3, .top_p = 0.25F, .min_p = 0.1F, .seed = draw(99), .choice = 1, .position = 7};
    edits_ = {.starts = numbers(draw(4)),
              .ids = tokens(draw(4)),
              .penalties = floats(draw(4)),
              .offsets = floats(draw(4)),
              .masked_rows = numbers(draw(3)),
              .masks = {}};
    for (std::int64_t n = draw(4); n > 0; --n) edits_.masks.push_back(static_cast<std::uint32_t>(draw(1 << 30)));
    targets_ = tokens(draw(5));
    hidden_rows_ = numbers(draw(5));
    decision_ = {.runner = static_cast<RunnerKind>(draw(3)),
                 .size = draw(4096),
                 .padding = draw(64),
                 .reason = static_cast<Reason>(draw(kNumReasons)),
                 .form = static_cast<GraphForm>(draw(2)),
                 .adapters = draw(2) == 0};
    inputs_.emplace(ForwardInputs{.batch = batch_,
                                  .rope_positions = rope_,
                                  .sampling = sampling_,
                                  .edits = draw(2) == 0 ? nullptr : &edits_,
                                  .logprob_targets = targets_,
                                  .top_logprobs = static_cast<int>(draw(6)),
                                  .logits = std::span(space_).first(static_cast<std::size_t>(draw(2))),
                                  .hidden_states = std::span(space_).first(static_cast<std::size_t>(draw(2))),
                                  .hidden_rows = hidden_rows_,
                                  .force_eager = draw(2) == 0,
                                  .replay_graphs = draw(2) == 0});
  }

  std::mt19937 random_;
  std::array<std::vector<Sequence>, 2> groups_;
  std::size_t requests_ = 0;
  ForwardBatch batch_ = batch_of_groups(2);
  std::vector<float> values_;
  RopeAxes rope_;
  std::vector<SampleRow> sampling_;
  LogitEdits edits_;
  std::vector<TokenId> targets_;
  std::vector<std::int32_t> hidden_rows_;
  std::vector<float> space_ = {0};
  Decision decision_;
  std::optional<ForwardInputs> inputs_;
};

std::vector<std::byte> pack(ForwardPacker& packer, const ForwardInputs& inputs, const Decision& decision) {
  std::vector<std::byte> message;
  MessageWriter writer(message, 3, 17);
  packer.pack(inputs, decision, writer);
  writer.finish();
  return message;
}

Status unpack(ReceivedForward& received, std::span<const std::byte> message) {
  MessageReader reader = TRY(MessageReader::open(message));
  return received.unpack(reader);
}

std::vector<std::byte> repacked(ForwardPacker& packer, const ReceivedForward& received) {
  std::vector<float> space(1);
  return pack(packer,
              received.inputs(std::span(space).first(received.wants_logits() ? 1 : 0),
                              std::span(space).first(received.wants_hidden() ? 1 : 0)),
              received.decision());
}

// Compares whole page tables. A packed batch only contains the differences from the batch before it, so equal messages
// do not prove equal tables.
void expect_same_tables(const ForwardBatch& got, const ForwardBatch& want) {
  ASSERT_EQ(got.groups.size(), want.groups.size());
  for (std::size_t g = 0; g < want.groups.size(); ++g) {
    ASSERT_EQ(got.groups[g].page_tables.size(), want.groups[g].page_tables.size());
    for (std::size_t r = 0; r < want.groups[g].page_tables.size(); ++r) {
      const PageTable& a = got.groups[g].page_tables[r];
      const PageTable& b = want.groups[g].page_tables[r];
      EXPECT_TRUE(std::ranges::equal(a.pages, b.pages)) << g << " " << r;
      EXPECT_EQ(a.first_held, b.first_held);
      EXPECT_EQ(a.number, b.number);
    }
  }
}

TEST(RankForward, RandomForwardsComeAsTheyWereSent) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    RandomForwards forwards(seed);
    ForwardPacker packer;
    ForwardPacker second;  // packs each received forward again, for comparison
    ReceivedForward received;
    for (int step = 0; step < 60; ++step) {
      const ForwardInputs& sent = forwards.next();
      const std::vector<std::byte> message = pack(packer, sent, forwards.decision());
      const Status read = unpack(received, message);
      ASSERT_TRUE(read.ok()) << read.to_string();
      EXPECT_EQ(repacked(second, received), message) << seed << " " << step;
      expect_same_tables(received.inputs({}, {}).batch, sent.batch);
    }
  }
}

TEST(RankForward, UnchangedTablesSendOnlyNewPages) {
  std::vector<PageId> pages(1000, PageId(5));
  ForwardBatch batch = batch_of_groups(1);
  batch.query_lens = {1};
  batch.groups[0].page_tables = {{.pages = pages, .number = new_page_table_number()}};
  ForwardPacker packer;
  EXPECT_GT(pack(packer, {.batch = batch}, {}).size(), 4000u);
  EXPECT_LT(pack(packer, {.batch = batch}, {}).size(), 600u);
  // If an entry of a table was replaced, the table must get a new number. A table with a new number is sent whole.
  batch.groups[0].page_tables[0].number = new_page_table_number();
  EXPECT_GT(pack(packer, {.batch = batch}, {}).size(), 4000u);
}

TEST(RankForward, EveryTruncatedMessageIsAnError) {
  RandomForwards forwards(3);
  for (int step = 0; step < 10; ++step) {
    ForwardPacker packer;
    const std::vector<std::byte> whole = pack(packer, forwards.next(), forwards.decision());
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 8) {
      std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      ReceivedForward received;
      EXPECT_EQ(unpack(received, cut).code(), StatusCode::kDataLoss) << bytes;
      if (bytes < kMessageHeaderBytes) continue;
      const std::uint64_t size = cut.size();  // the size in the header must agree with the cut message
      std::memcpy(cut.data() + 24, &size, sizeof(size));
      EXPECT_EQ(unpack(received, cut).code(), StatusCode::kDataLoss) << bytes;
    }
  }
}

// The receiver must not trust messages. Changed bytes may cause an error or a different forward, but never a read
// outside the message.
TEST(RankForward, ChangedMessagesNeverReadOutside) {
  RandomForwards forwards(4);
  int errors = 0;
  for (int step = 0; step < 2000; ++step) {
    ForwardPacker packer;
    std::vector<std::byte> message = pack(packer, forwards.next(), forwards.decision());
    const auto at = static_cast<std::size_t>(forwards.draw(std::ssize(message)));
    message[at] = static_cast<std::byte>(forwards.draw(256));
    ReceivedForward received;
    const Status read = unpack(received, message);
    EXPECT_TRUE(read.ok() || read.code() == StatusCode::kDataLoss) << read.to_string();
    errors += read.ok() ? 0 : 1;
  }
  EXPECT_GT(errors, 100);
}

TEST(RankForward, MessagesOfAnotherFormAreNamed) {
  std::vector<std::byte> message;
  MessageWriter(message, 3, 17).finish();
  ReceivedForward received;
  EXPECT_THAT(unpack(received, message).message(), HasSubstr("a message ends within runner"));

  ForwardPacker packer;
  const ForwardBatch empty;
  const std::vector<std::byte> good = pack(packer, {.batch = empty}, {});
  message = good;
  message.resize(message.size() + 8);
  EXPECT_THAT(unpack(received, message).message(),
              HasSubstr(fmt::format("a message of {} bytes that says it has {}", message.size(), good.size())));
  message = good;
  message[0] = std::byte{1};
  EXPECT_THAT(unpack(received, message).message(), HasSubstr("no message of version"));
  message = good;
  message[kMessageHeaderBytes] = std::byte{77};
  EXPECT_THAT(unpack(received, message).message(), HasSubstr("runner of a message is 77; 0 to 2 is accepted"));
}

TEST(RankForward, ATableOfAnUnknownNumberIsAnError) {
  const std::vector<PageId> pages(3, PageId(5));
  ForwardBatch batch = batch_of_groups(1);
  batch.query_lens = {1};
  batch.groups[0].page_tables = {{.pages = pages, .number = new_page_table_number()}};
  ForwardPacker packer;
  pack(packer, {.batch = batch}, {});
  ReceivedForward received;  // this receiver has missed the first message
  EXPECT_THAT(unpack(received, pack(packer, {.batch = batch}, {})).message(), HasSubstr("of the last forward"));
}

}  // namespace
}  // namespace tessera
