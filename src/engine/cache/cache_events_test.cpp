// Catches: an observer that takes a block for cached although it is not, or for missing although it is cached; wrong
// parents, tokens or adapters in events; and ids of equal texts that differ between servers, or ids of different texts
// that are equal.
#include "tessera/engine/cache/cache_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tessera/engine/cache/prefix_cache_test_util.h"
#include "tessera/engine/engine_test_util.h"

namespace tessera {
namespace {

using test::token_ids;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kBlockTokens = 2;
constexpr std::int64_t kBlockPages = 20;

// Rebuilds a cache's content from its events, as a gateway does. For each block, keeps all tokens from the beginning of
// the text to the end of the block.
class BlockIndex {
 public:
  void apply(const CacheEvents& events) {
    for (const CacheEvent& event : events) std::visit([this](const auto& e) { apply_one(e); }, event);
  }
  std::set<std::vector<TokenId>> texts() const {
    std::set<std::vector<TokenId>> all;
    for (const auto& [id, text] : blocks_) all.insert(text);
    return all;
  }

 private:
  void apply_one(const BlocksStored& stored) {
    std::vector<TokenId> text;
    if (stored.parent) {
      ASSERT_TRUE(blocks_.contains(*stored.parent)) << "the parent is cached";
      text = blocks_[*stored.parent];
    }
    ASSERT_EQ(stored.tokens.size(), stored.ids.size() * kBlockTokens);
    ASSERT_EQ(stored.images.size(), stored.ids.size());
    for (std::size_t i = 0; i < stored.ids.size(); ++i) {
      text.insert(text.end(), &stored.tokens[i * kBlockTokens], &stored.tokens[i * kBlockTokens] + kBlockTokens);
      EXPECT_TRUE(blocks_.emplace(stored.ids[i], text).second) << "a block is stored twice";
    }
  }
  void apply_one(const BlocksRemoved& removed) {
    for (const std::uint64_t id : removed.ids) EXPECT_EQ(blocks_.erase(id), 1) << "an unknown block is removed";
  }
  void apply_one(const BlocksCleared&) { blocks_.clear(); }

  std::map<std::uint64_t, std::vector<TokenId>> blocks_;
};

class CacheEventsTest : public ::testing::Test {
 protected:
  CacheEventsTest() { cache_.observe(&log_); }

  void compute(const PrefixTokens& tokens) { test::compute_sequence(cache_, pools_, tokens, kBlockTokens); }
  template <class Event>
  Event take_only() {
    const CacheEvents events = log_.take();
    EXPECT_THAT(events, SizeIs(1));
    const Event* const event = events.empty() ? nullptr : std::get_if<Event>(&events[0]);
    EXPECT_NE(event, nullptr);
    return event == nullptr ? Event{} : *event;
  }
  PrefixTokens with_adapter(const std::vector<TokenId>& tokens, std::int64_t number, std::string_view name,
                            std::int64_t loads = 0) {
    PrefixTokens made(tokens, {}, number);
    made.adapter_name = name;
    made.adapter_loads = loads;
    return made;
  }

  CacheEventLog log_;
  std::vector<CachePool> pools_{CachePool({.num_pages = kBlockPages})};
  PrefixCache cache_{pools_, kBlockTokens};
};

TEST_F(CacheEventsTest, AChainOfNewBlocksIsOneEvent) {
  compute(token_ids({1, 2, 3, 4, 5}));
  const BlocksStored stored = take_only<BlocksStored>();
  EXPECT_THAT(stored.ids, SizeIs(2)) << "the last token fills no block";
  EXPECT_EQ(stored.parent, std::nullopt);
  EXPECT_EQ(stored.tokens, token_ids({1, 2, 3, 4}));
  EXPECT_EQ(stored.adapter, 0);
  compute(token_ids({1, 2, 3, 4}));
  EXPECT_TRUE(log_.empty()) << "nothing new";
}

TEST_F(CacheEventsTest, ABranchNamesItsParent) {
  compute(token_ids({1, 2, 3, 4}));
  const BlocksStored first = take_only<BlocksStored>();
  compute(token_ids({1, 2, 7, 8, 9, 10}));
  const BlocksStored branch = take_only<BlocksStored>();
  EXPECT_EQ(branch.parent, first.ids[0]);
  EXPECT_EQ(branch.tokens, token_ids({7, 8, 9, 10}));
}

TEST_F(CacheEventsTest, AnEvictionNamesTheBlocks) {
  compute(token_ids({1, 2, 3, 4}));
  const BlocksStored stored = take_only<BlocksStored>();
  cache_.evict(0, 2);
  EXPECT_THAT(take_only<BlocksRemoved>().ids, ElementsAre(stored.ids[1], stored.ids[0])) << "the last block first";
}

TEST_F(CacheEventsTest, AFlushOfAllBlocksIsOneEvent) {
  compute(token_ids({1, 2, 3, 4}));
  cache_.flush();
  take_only<BlocksCleared>();
}

TEST_F(CacheEventsTest, AFlushNamesBlocksIfOthersAreInUse) {
  compute(token_ids({1, 2, 3, 4}));
  const BlocksStored stored = take_only<BlocksStored>();
  PrefixCache::Path used = cache_.find(token_ids({1, 2}));
  cache_.flush();
  EXPECT_THAT(take_only<BlocksRemoved>().ids, ElementsAre(stored.ids[1]));
  cache_.release(used);
}

TEST_F(CacheEventsTest, BlocksOfAdaptersHaveIdsOfTheirOwn) {
  const std::vector<TokenId> text = token_ids({1, 2, 3, 4});
  std::set<std::uint64_t> first_ids;
  std::set<std::uint64_t> second_ids;
  const auto add = [&](const PrefixTokens& tokens) {
    compute(tokens);
    BlocksStored stored = take_only<BlocksStored>();
    first_ids.insert(stored.ids.at(0));
    second_ids.insert(stored.ids.at(1));
    return stored;
  };
  add(text);
  const BlocksStored stored = add(with_adapter(text, 5, "sql"));
  EXPECT_EQ(stored.adapter, 5);
  EXPECT_EQ(stored.adapter_name, "sql");
  add(with_adapter(text, 6, "poems"));
  add(with_adapter(text, 7, "sql", 1));
  EXPECT_THAT(first_ids, SizeIs(4)) << "another load under the same name is another adapter";
  EXPECT_THAT(second_ids, SizeIs(4));
}

TEST_F(CacheEventsTest, AnAdaptersNumberIsNoPartOfIds) {
  const std::vector<TokenId> text = token_ids({1, 2});
  compute(with_adapter(text, 5, "sql"));
  const BlocksStored stored = take_only<BlocksStored>();
  EXPECT_THAT(stored.ids, ElementsAre(block_id(0, with_adapter(text, 9, "sql"), text, {})));
  EXPECT_THAT(stored.images, ElementsAre(IsEmpty()));
}

TEST_F(CacheEventsTest, ImagesArePartsOfIds) {
  const std::vector<TokenId> text = token_ids({1, 9, 9, 2});
  const auto with = [](std::uint64_t content) {
    return std::vector{ImageSpan{.first_token = 1, .count = 2, .content = {.high = 0, .low = content}}};
  };
  const std::vector<ImageSpan> one = with(1);
  const std::vector<ImageSpan> two = with(2);
  compute({text, one});
  const BlocksStored stored = take_only<BlocksStored>();
  EXPECT_THAT(stored.images.at(0), SizeIs(1));
  compute({text, two});
  const BlocksStored other = take_only<BlocksStored>();
  EXPECT_NE(stored.ids[0], other.ids[0]);
  EXPECT_NE(stored.ids[1], other.ids[1]);
}

// Another program computed the expected ids. The test checks that ids stay the same from version to version.
TEST(BlockId, StaysTheSame) {
  const std::vector<TokenId> text = token_ids({1, 2, 3});
  const std::uint64_t first = block_id(0, text, text, {});
  EXPECT_EQ(first, 0x15052bc23b497d1du);
  EXPECT_EQ(block_id(first, text, text, {}), 0x2433b068745c0795u);
}

TEST_F(CacheEventsTest, AnIndexFollowsACacheUnderEviction) {
  std::mt19937 random(7);
  BlockIndex index;
  for (int round = 0; round < 500; ++round) {
    std::vector<TokenId> text;
    const auto length = static_cast<int>(random() % 14);
    for (int i = 0; i < length; ++i) text.emplace_back(static_cast<int>(random() % 2));
    compute(text);
    if (random() % 50 == 0) cache_.flush();
    if (random() % 3 != 0) continue;  // a batch has the events of several texts
    index.apply(log_.take());
    const std::set<std::vector<TokenId>> texts = index.texts();
    ASSERT_EQ(std::ssize(texts), cache_.num_nodes());
    for (const std::vector<TokenId>& cached : texts)
      ASSERT_EQ(cache_.count_known(cached), std::ssize(cached) / kBlockTokens);
  }
}

TEST(EngineCacheEvents, ComeWithTheStepsOfRequests) {
  const std::unique_ptr<Engine> engine = test::make_engine();
  ASSERT_NE(engine, nullptr);
  CacheEvents events;
  engine->observe_cache([&](CacheEvents more) {
    for (CacheEvent& event : more) events.push_back(std::move(event));
  });
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_TRUE(std::holds_alternative<BlocksCleared>(events[0])) << "an observer forgets what it knew";
  test::run_one(*engine, test::request(20, 4));
  engine->report_cache_events();
  ASSERT_THAT(events, SizeIs(2));
  const BlocksStored& stored = std::get<BlocksStored>(events[1]);
  EXPECT_THAT(stored.ids, SizeIs(2)) << "of 8 tokens each";
  const std::vector<TokenId> prompt = test::request(20, 4).prompt;
  EXPECT_EQ(stored.tokens, std::vector<TokenId>(prompt.begin(), prompt.begin() + 16));
  engine->flush_prefix_cache();
  engine->report_cache_events();
  EXPECT_TRUE(std::holds_alternative<BlocksCleared>(events.back()));
  engine->observe_cache({});
  test::run_one(*engine, test::request(20, 4));
  engine->report_cache_events();
  EXPECT_THAT(events, SizeIs(3)) << "nobody observes any more";
}

}  // namespace
}  // namespace tessera
