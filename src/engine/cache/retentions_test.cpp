// Catches: a retained text that is evicted before texts that are not retained, or that is kept after its time or its
// session's end; a retention that takes pages away from requests for good; and a client that ends the retention of
// another client's texts.
#include "tessera/engine/cache/retentions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/cache/prefix_cache_test_util.h"

namespace tessera {
namespace {

using std::chrono::seconds;
using test::token_ids;

constexpr std::int64_t kRetainedPageSize = 2;
constexpr Retentions::Time kRetentionStart{seconds(1000)};

RetentionHint retention_of(std::string session, double for_seconds, std::int64_t priority = 50) {
  return {.session = std::move(session), .seconds = for_seconds, .priority = priority};
}

class RetentionsTest : public ::testing::Test {
 protected:
  // Computes a text as a request with the hint does.
  void compute(const PrefixTokens& tokens, const RetentionHint& with = {}, Retentions::Time now = kRetentionStart) {
    test::compute_sequence(cache_, pools_, tokens, kRetainedPageSize);
    if (!with.any()) return;
    PrefixCache::Path path = cache_.find(tokens);
    cache_.retain(with, path, path.size(), now);
    cache_.release(path);
  }
  std::int64_t known(const PrefixTokens& tokens) const { return cache_.count_known(tokens); }

  std::vector<CachePool> pools_{CachePool({.num_pages = 20})};
  PrefixCache cache_{pools_, kRetainedPageSize};
  const std::vector<TokenId> a_ = token_ids({1, 2, 3, 4});
  const std::vector<TokenId> b_ = token_ids({5, 6, 7, 8});
  const std::vector<TokenId> c_ = token_ids({9, 9, 8, 8});
};

TEST_F(RetentionsTest, ARetainedTextIsEvictedAfterAllOthers) {
  compute(a_, retention_of("s", 60));
  compute(b_);
  compute(c_);
  EXPECT_EQ(cache_.evict(0, 4), 4);
  EXPECT_EQ(known(a_), 2) << "although it was used before the others";
  EXPECT_EQ(cache_.retention_stats().evicted, 0);
}

TEST_F(RetentionsTest, TextsOfHigherPriorityAreEvictedLater) {
  compute(a_, retention_of("s", 60, 2));
  compute(b_, retention_of("t", 60, 3));
  compute(c_, retention_of("", 60, 1));
  cache_.evict(0, 2);
  EXPECT_EQ(known(c_), 0) << "the lowest priority, though the last used";
  cache_.evict(0, 2);
  EXPECT_EQ(known(a_), 0);
  EXPECT_EQ(known(b_), 2);
}

TEST_F(RetentionsTest, EvenRetainedPagesGiveWayToRequests) {
  compute(a_, retention_of("s", 60, 100));
  EXPECT_EQ(cache_.num_evictable(0), 2);
  EXPECT_EQ(cache_.evict(0, 5), 2);
  EXPECT_EQ(pools_[0].num_free(), 19);
  EXPECT_EQ(cache_.retention_stats().evicted, 2);
}

TEST_F(RetentionsTest, ATextIsOrdinaryAfterItsTime) {
  compute(a_, retention_of("s", 60));
  compute(b_);
  cache_.end_retentions(kRetentionStart + seconds(59));
  EXPECT_EQ(cache_.retention_stats().texts, 1);
  cache_.end_retentions(kRetentionStart + seconds(60));
  EXPECT_FALSE(cache_.retains());
  cache_.evict(0, 2);
  EXPECT_EQ(known(a_), 0) << "it was used before the other";
  EXPECT_EQ(known(b_), 2);
}

TEST_F(RetentionsTest, AReleasedSessionIsOrdinaryAgain) {
  compute(a_, retention_of("s", 60));
  compute(b_);
  EXPECT_FALSE(cache_.release_session("t"));
  EXPECT_TRUE(cache_.release_session("s"));
  EXPECT_FALSE(cache_.release_session("s"));
  EXPECT_EQ(known(a_), 2) << "its pages stay until others need them";
  cache_.evict(0, 2);
  EXPECT_EQ(known(a_), 0);
}

TEST_F(RetentionsTest, ASessionsNextTextReplacesItsLast) {
  compute(a_, retention_of("s", 60));
  compute(b_, retention_of("s", 60));
  EXPECT_EQ(cache_.retention_stats().texts, 1);
  cache_.evict(0, 2);
  EXPECT_EQ(known(a_), 0);
  EXPECT_EQ(known(b_), 2);
}

TEST_F(RetentionsTest, ALaterRequestTakesOverTheSessionsValues) {
  compute(a_, retention_of("s", 60));
  compute(b_, {.session = "s"}, kRetentionStart + seconds(50));
  cache_.end_retentions(kRetentionStart + seconds(70));
  EXPECT_TRUE(cache_.retains()) << "the time begins again";
  cache_.end_retentions(kRetentionStart + seconds(110));
  EXPECT_FALSE(cache_.retains());
  compute(c_, {.session = "s"}, kRetentionStart + seconds(120));
  EXPECT_FALSE(cache_.retains()) << "the session is over";
}

TEST_F(RetentionsTest, ARequestForNoSecondsReleasesItsSession) {
  compute(a_, retention_of("s", 60));
  compute(b_, retention_of("s", 0));
  EXPECT_FALSE(cache_.retains());
}

TEST_F(RetentionsTest, WhatIsLeftOfATextStaysRetained) {
  compute(a_, retention_of("s", 60));
  cache_.evict(0, 1);
  EXPECT_EQ(known(a_), 1);
  compute(b_);
  cache_.evict(0, 2);
  EXPECT_EQ(known(a_), 1);
  EXPECT_EQ(known(b_), 0);
}

TEST_F(RetentionsTest, ASharedBeginningIsRetainedWithEitherText) {
  const std::vector<TokenId> longer = token_ids({1, 2, 3, 4, 5, 6});
  const std::vector<TokenId> other = token_ids({1, 2, 3, 4, 7, 8});
  compute(longer, retention_of("s", 60, 10));
  compute(other, retention_of("t", 60, 20));
  compute(c_);
  cache_.evict(0, 3);
  EXPECT_EQ(known(longer), 2) << "its own page is gone";
  EXPECT_EQ(known(other), 3);
  cache_.release_session("t");
  cache_.evict(0, 1);
  EXPECT_EQ(known(other), 2);
  compute(c_);
  cache_.evict(0, 2);
  EXPECT_EQ(known(longer), 2) << "the first session still retains what is left";
}

TEST_F(RetentionsTest, TextsWithoutASessionAreRetainedEach) {
  compute(a_, retention_of("", 60));
  compute(b_, retention_of("", 60));
  EXPECT_EQ(cache_.retention_stats().texts, 2);
  EXPECT_FALSE(cache_.release_session(""));
}

TEST_F(RetentionsTest, TheTextThatEndsFirstMakesRoomForMore) {
  for (std::size_t i = 0; i < Retentions::kMost; ++i)
    compute(i == 7 ? a_ : b_, retention_of(std::to_string(i), i == 7 ? 5 : 60));
  compute(c_, retention_of("more", 60));
  EXPECT_EQ(cache_.retention_stats().texts, static_cast<std::int64_t>(Retentions::kMost));
  EXPECT_FALSE(cache_.release_session("7"));
  EXPECT_TRUE(cache_.release_session("more"));
}

// Returns the retention hint of an owner's session. Owners do not share sessions, even if the sessions have the same
// name.
RetentionHint owned(const std::string& owner, const std::string& session, double for_seconds) {
  RetentionHint hint = retention_of(owner + ":" + session, for_seconds);
  hint.owner = owner;
  return hint;
}
void change_level(Retentions::Place, const std::function<void()>& change) { change(); }

TEST_F(RetentionsTest, ATextWithoutPagesIsNotRetained) {
  compute(a_, retention_of("s", 60));
  cache_.evict(0, 1);
  EXPECT_EQ(cache_.retention_stats().texts, 1);
  cache_.evict(0, 1);
  EXPECT_EQ(cache_.retention_stats().texts, 0);
  EXPECT_FALSE(cache_.release_session("s"));
}

TEST_F(RetentionsTest, TextsWithoutPagesTakeNoRoomFromOthers) {
  compute(a_, retention_of("first", 60));
  for (std::size_t i = 0; i < Retentions::kMost; ++i) {
    compute(b_, retention_of(std::to_string(i), 1000, 1));
    if (i + 1 < Retentions::kMost) cache_.evict(0, 2);
  }
  EXPECT_EQ(cache_.retention_stats().texts, 2);
  EXPECT_TRUE(cache_.release_session("first"));
}

TEST(Retentions, MarksThatMeetAreCountedOnce) {
  Retentions retentions(change_level);
  std::vector<char> nodes(Retentions::kMostMarks + 1);
  std::vector<Retentions::Place> places;
  for (char& node : nodes) places.push_back({.node = &node});
  retentions.retain(retention_of("a", 60), std::span(places).first(2), kRetentionStart);
  retentions.move(places[0], places[1]);
  retentions.retain(retention_of("b", 60), std::span(places).subspan(2), kRetentionStart);
  EXPECT_EQ(retentions.count(), 2) << "both have as many marks as are accepted";
  retentions.forget(places[1]);
  EXPECT_EQ(retentions.count(), 1);
}

TEST(Retentions, AnOwnersTextsDoNotEndAnothersFewer) {
  Retentions retentions(change_level);
  char node = 0;
  const Retentions::Place place{.node = &node};
  retentions.retain(owned("one", "first", 1), {&place, 1}, kRetentionStart);
  for (std::size_t i = 0; i < Retentions::kMost; ++i)
    retentions.retain(owned("two", std::to_string(i), 60), {&place, 1}, kRetentionStart);
  EXPECT_TRUE(retentions.release("one:first")) << "although it ends first";
  EXPECT_FALSE(retentions.release("two:0"));
  EXPECT_TRUE(retentions.release("two:1"));
}

TEST(Retentions, AnOwnersMarksDoNotEndAnothersFewer) {
  Retentions retentions(change_level);
  std::vector<char> nodes(Retentions::kMostMarks / 2);
  std::vector<Retentions::Place> places;
  for (char& node : nodes) places.push_back({.node = &node});
  retentions.retain(owned("one", "first", 1), std::span(places).first(5), kRetentionStart);
  retentions.retain(owned("two", "long", 60), places, kRetentionStart);
  retentions.retain(owned("two", "longer", 70), places, kRetentionStart);
  EXPECT_TRUE(retentions.release("one:first"));
  EXPECT_FALSE(retentions.release("two:long"));
}

TEST(Retentions, ATextWithTooManyMarksEndsNoOther) {
  Retentions retentions(change_level);
  std::vector<char> nodes(Retentions::kMostMarks + 1);
  std::vector<Retentions::Place> places;
  for (char& node : nodes) places.push_back({.node = &node});
  retentions.retain(retention_of("a", 60), std::span(places).first(1), kRetentionStart);
  retentions.retain(retention_of("b", 60), places, kRetentionStart);
  EXPECT_EQ(retentions.count(), 1);
  EXPECT_TRUE(retentions.release("a"));
}

TEST(Retentions, ManyRetentionsEndInSeveralSteps) {
  Retentions retentions(change_level);
  std::vector<char> nodes(Retentions::kMarksAtOnce / 2);
  std::vector<Retentions::Place> places;
  for (char& node : nodes) places.push_back({.node = &node});
  for (int i = 0; i < 5; ++i) retentions.retain(retention_of(std::to_string(i), 60), places, kRetentionStart);
  for (const int left : {3, 1, 0}) {
    retentions.end(kRetentionStart + seconds(60));
    EXPECT_EQ(retentions.count(), left);
  }
}

TEST(Retentions, TheMarksOfAllTextsAreLimited) {
  Retentions retentions(change_level);
  std::vector<char> nodes(Retentions::kMostMarks / 2);
  std::vector<Retentions::Place> places;
  for (char& node : nodes) places.push_back({.node = &node});
  for (const char* session : {"a", "b", "c"}) retentions.retain(retention_of(session, 60), places, kRetentionStart);
  EXPECT_EQ(retentions.count(), 2);
  EXPECT_FALSE(retentions.release("a"));
  EXPECT_EQ(retentions.level(places.front()), 50);
  retentions.clear();
  EXPECT_EQ(retentions.level(places.front()), 0);
}

TEST_F(RetentionsTest, FlushingEndsAllRetentions) {
  compute(a_, retention_of("s", 60));
  PrefixCache::Path used = cache_.find(a_);
  cache_.flush();
  EXPECT_FALSE(cache_.retains());
  EXPECT_EQ(known(a_), 2) << "a sequence uses it";
  cache_.release(used);
  cache_.flush();
  EXPECT_EQ(cache_.num_nodes(), 0);
}

// Runs sequences of a model that has layers with full attention, and also layers with a window or with recurrent
// states.
class GroupRetentionsTest : public ::testing::Test {
 protected:
  static std::vector<TokenId> text(std::int32_t first, std::int64_t count = 17) {
    std::vector<TokenId> made;
    for (std::int64_t i = 0; i < count; ++i) made.emplace_back(first + static_cast<std::int32_t>(i));
    return made;
  }
  CacheManager& make(CacheGroupOptions group) {
    cache_ =
        std::make_unique<CacheManager>(CacheOptions{.groups = {{.num_pages = 100}, std::move(group)}, .page_size = 4});
    return *cache_;
  }
  // Acts as a sequence that computes a prompt in one forward and ends. The prompt has whole pages and one more token.
  void run(const std::vector<TokenId>& tokens, const RetentionHint& with = {}) {
    SequenceCache own;
    cache_->find(own, std::span(tokens).first(tokens.size() - 1));
    const auto count = std::ssize(tokens);
    cache_->admit(own, count, count);
    cache_->take_pages(own, count, count);
    cache_->keep(own, std::span(tokens).first(tokens.size() - 1));
    if (cache_->has_states()) cache_->leave_checkpoint(own);
    if (with.any()) cache_->retain(own, with, count, kRetentionStart);
    cache_->release(own);
  }
  std::int64_t known(const std::vector<TokenId>& tokens) const { return cache_->count_known(tokens); }

  std::unique_ptr<CacheManager> cache_;
};

TEST_F(GroupRetentionsTest, ARetainedTextKeepsItsStates) {
  make({.kind = ir::CacheGroup::Kind::kState, .num_pages = 4});
  run(text(100), retention_of("s", 60));
  for (std::int32_t other = 2; other < 9; ++other) run(text(100 * other));
  EXPECT_EQ(known(text(100)), 4);
  EXPECT_EQ(known(text(200)), 0);
  cache_->end_retentions(kRetentionStart + seconds(60));
  for (std::int32_t other = 2; other < 9; ++other) run(text(100 * other));
  EXPECT_EQ(known(text(100)), 0) << "its state is gone";
}

TEST_F(GroupRetentionsTest, ARetainedTextKeepsTheEndOfItsWindow) {
  make({.kind = ir::CacheGroup::Kind::kWindow, .window = 8, .num_pages = 12});
  run(text(100), retention_of("s", 60));
  for (std::int32_t other = 2; other < 9; ++other) run(text(100 * other));
  EXPECT_EQ(known(text(100)), 4);
  cache_->release_session("s");
  for (std::int32_t other = 2; other < 9; ++other) run(text(100 * other));
  EXPECT_EQ(known(text(100)), 0);
}

TEST_F(GroupRetentionsTest, ATextWithoutItsStatesIsOrdinary) {
  make({.kind = ir::CacheGroup::Kind::kState, .num_pages = 4});
  run(text(100), retention_of("s", 60));
  EXPECT_EQ(cache_->retention_stats().texts, 1);
  cache_->forget_checkpoints();
  EXPECT_EQ(cache_->retention_stats().texts, 0) << "no prompt can use its other pages";
}

TEST_F(GroupRetentionsTest, RetainedStatesGiveWayToRequests) {
  make({.kind = ir::CacheGroup::Kind::kState, .num_pages = 3});
  run(text(100), retention_of("s", 60));
  run(text(200), retention_of("t", 60));
  EXPECT_EQ(cache_->available(1), 2);
  run(text(300), retention_of("u", 60));
  EXPECT_EQ(known(text(300)), 4);
  EXPECT_GT(cache_->retention_stats().evicted, 0);
}

}  // namespace
}  // namespace tessera
