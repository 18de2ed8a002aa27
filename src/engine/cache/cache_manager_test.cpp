// Catches: a sliding window that keeps pages it does not need or frees pages it needs; a prefix that is reused although
// one group of layers has lost its pages of that prefix; a checkpoint of a recurrent state that is not copied, copied
// late or lost with its slot; and leaked pages.
#include "tessera/engine/cache/cache_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum ir::CacheGroup::Kind;

constexpr std::int64_t kPageSize = 4;

std::vector<TokenId> ids(std::int64_t count, std::int32_t first = 1) {
  std::vector<TokenId> made;
  for (std::int64_t i = 0; i < count; ++i) made.emplace_back(first + static_cast<std::int32_t>(i));
  return made;
}

class CacheManagerTest : public ::testing::Test {
 protected:
  CacheManager& make(std::vector<CacheGroupOptions> groups) {
    cache_ = std::make_unique<CacheManager>(CacheOptions{.groups = std::move(groups), .page_size = kPageSize});
    return *cache_;
  }
  CacheManager& window(std::int64_t pages = 100) {
    return make({{.num_pages = 100}, {.kind = kWindow, .window = 8, .num_pages = pages}});
  }
  CacheManager& state(std::int64_t slots) { return make({{.num_pages = 100}, {.kind = kState, .num_pages = slots}}); }

  // Computes `tokens` in chunks as a sequence does. Returns the number of tokens found in the prefix cache.
  std::int64_t compute(SequenceCache& own, const std::vector<TokenId>& tokens, std::int64_t chunk = 8) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    cache_->find(own, std::span(tokens).first(tokens.size() - 1));
    const std::int64_t known = own.cached_pages() * kPageSize;
    cache_->admit(own, count, count + 100);
    std::int64_t computed = known;
    while (computed < count) {
      const std::int64_t now = std::min(chunk, count - computed);
      EXPECT_EQ(cache_->fitting(own, computed, now), now);
      cache_->take_pages(own, count, computed + now);
      computed += now;
      cache_->keep(own, std::span(tokens).first(static_cast<std::size_t>(computed)));
      if (own.cached_pages() * kPageSize == computed) cache_->add_checkpoint(own);
      cache_->leave_window(own, computed);
    }
    return known;
  }
  std::vector<SlotCopy> copies() {
    std::vector<SlotCopy> copies;
    cache_->take_copies(copies);
    return copies;
  }

  std::unique_ptr<CacheManager> cache_;
};

TEST_F(CacheManagerTest, ASequenceHoldsItsWindowAndOneMorePage) {
  CacheManager& cache = window();
  SequenceCache own;
  compute(own, ids(50));
  EXPECT_EQ(own.groups[0].num_held(), 13);
  for (std::int64_t computed = 50; computed < 200; ++computed) {
    cache.take_pages(own, computed + 1, computed + 1);
    EXPECT_LE(own.groups[1].num_held(), 8 / kPageSize + 1);
    // The next token attends to itself and to the 7 positions before it.
    for (std::int64_t p = computed - 7; p <= computed; ++p)
      EXPECT_NE(own.groups[1].pages[static_cast<std::size_t>(p / kPageSize)], PageId(0)) << p << " at " << computed;
    cache.leave_window(own, computed + 1);
  }
  EXPECT_EQ(own.groups[0].num_held(), 50);
  cache.release(own);
  for (std::size_t g : {0, 1}) EXPECT_EQ(cache.stats(g).used_pages, 0);
}

TEST_F(CacheManagerTest, APromptHoldsItsChunkToo) {
  CacheManager& cache = window();
  SequenceCache own;
  cache.find(own, {});
  cache.admit(own, 64, 64);
  EXPECT_EQ(own.groups[0].num_held(), 16) << "all of the prompt";
  EXPECT_EQ(own.groups[1].num_held(), 0) << "nothing before it is computed";
  cache.take_pages(own, 64, 32);
  EXPECT_EQ(own.groups[1].num_held(), 8);
  cache.leave_window(own, 32);
  EXPECT_EQ(own.groups[1].num_held(), 2) << "positions 25 to 31 are seen by token 32";
}

TEST_F(CacheManagerTest, AWindowLimitsWhatFitsAForward) {
  CacheManager& cache = window(/*pages=*/6);
  SequenceCache own;
  cache.find(own, {});
  cache.admit(own, 64, 64);
  EXPECT_EQ(cache.fitting(own, 0, 64), 5 * kPageSize);
  cache.take_pages(own, 64, 20);
  cache.leave_window(own, 20);
  EXPECT_EQ(cache.fitting(own, 20, 44), 3 * kPageSize) << "two pages are the window's";
  EXPECT_EQ(cache.max_tokens(), 99 * kPageSize) << "the paged group's";
}

TEST_F(CacheManagerTest, WindowsAndStatesBoundNoLength) {
  EXPECT_EQ(make({{.kind = kWindow, .window = 8, .num_pages = 4}}).max_tokens(), CacheManager::kUnbounded);
  EXPECT_EQ(make({{.kind = kWindow, .window = 8, .num_pages = 3}}).max_tokens(), 2 * kPageSize) << "less than a window";
  EXPECT_EQ(make({{.kind = kState, .num_pages = 2}}).max_tokens(), CacheManager::kUnbounded);
  EXPECT_EQ(make({{.kind = kState, .num_pages = 1}}).max_tokens(), 0);
  EXPECT_EQ(make({{.kind = kLatent, .num_pages = 11}}).max_tokens(), 10 * kPageSize);
}

TEST_F(CacheManagerTest, APrefixIsReusedWithTheWindowBeforeIt) {
  CacheManager& cache = window();
  SequenceCache first;
  compute(first, ids(41));
  cache.release(first);
  SequenceCache second;
  EXPECT_EQ(compute(second, ids(41)), 40);
  EXPECT_EQ(second.groups[1].first_held, 8) << "token 40 sees 33 and on";
  cache.release(second);
}

TEST_F(CacheManagerTest, AnEvictedWindowPreventsReuse) {
  CacheManager& cache = window(/*pages=*/13);
  SequenceCache first;
  compute(first, ids(41));
  cache.release(first);
  EXPECT_EQ(cache.count_known(ids(41)), 10);
  // Takes all but two pages of the window group. This evicts the first sequence's cached pages in the order in which
  // they left its window, so the pages of its last window remain.
  SequenceCache other;
  cache.find(other, {});
  cache.admit(other, 40, 40);
  cache.take_pages(other, 40, 40);
  EXPECT_EQ(cache.available(1), 2);
  EXPECT_EQ(cache.count_known(ids(21)), 0) << "the window before token 20 is gone";
  EXPECT_EQ(cache.count_known(ids(41)), 10) << "that before token 40 is there";
  cache.take_pages(other, 40, 44);
  EXPECT_EQ(cache.count_known(ids(41)), 0);
  EXPECT_EQ(cache.stats(0).cached_pages, 10) << "the paged group has lost nothing";
  cache.release(other);
  // Computing the prefix again gives its nodes the missing pages.
  SequenceCache again;
  EXPECT_EQ(compute(again, ids(41)), 0);
  cache.release(again);
  EXPECT_EQ(cache.count_known(ids(41)), 10);
  cache.flush_prefixes();
  for (std::size_t g : {0, 1}) EXPECT_EQ(cache.stats(g).cached_pages, 0);
}

TEST_F(CacheManagerTest, AStateContinuesFromACheckpointAndNowhereElse) {
  CacheManager& cache = state(10);
  SequenceCache first;
  compute(first, ids(23));  // leaves checkpoints after 8 and 16 tokens
  const PageId slot = first.groups[1].pages[0];
  const std::vector<SlotCopy> kept = copies();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].from, slot);
  EXPECT_EQ(kept[1].from, slot);
  cache.release(first);
  EXPECT_EQ(cache.count_known(ids(23)), 4) << "20 tokens are known, and the state after 16";
  EXPECT_EQ(cache.count_known(ids(15)), 2);
  SequenceCache second;
  EXPECT_EQ(compute(second, ids(20), /*chunk=*/4), 16);
  EXPECT_THAT(copies()[0], (SlotCopy{.group = 1, .from = kept[1].to, .to = second.groups[1].pages[0]}));
  cache.release(second);
  cache.forget_checkpoints();
  EXPECT_EQ(cache.count_known(ids(23)), 0);
  EXPECT_EQ(cache.stats(1).cached_pages, 0);
}

// Several sequences have the same beginning. The second one finds the point where it diverges from the first one. Once
// it has left a checkpoint there, later sequences continue from that point.
TEST_F(CacheManagerTest, FindsTheBranchPointWithoutACheckpoint) {
  CacheManager& cache = state(10);
  SequenceCache first;
  compute(first, ids(100), /*chunk=*/100);
  EXPECT_EQ(first.branch_pages, 0);
  const auto parting = [](std::int64_t common) {
    std::vector<TokenId> tokens = ids(common);
    for (std::int32_t i = 0; i < 20; ++i) tokens.emplace_back(1000 + i);
    return tokens;
  };
  SequenceCache near;
  cache.find(near, parting(63));
  EXPECT_EQ(near.branch_pages, 0) << "60 tokens are too few";
  SequenceCache second;
  cache.find(second, parting(70));
  EXPECT_EQ(second.cached_pages(), 0);
  EXPECT_EQ(second.branch_pages, 17);
  cache.admit(second, 90, 100);
  cache.keep(second, std::span<const TokenId>(ids(68)));
  cache.add_checkpoint(second);
  SequenceCache third;
  cache.find(third, parting(71));
  EXPECT_EQ(third.cached_pages(), 17);
  EXPECT_EQ(third.branch_pages, 0);
  for (SequenceCache* own : {&first, &near, &second, &third}) cache.release(*own);
}

TEST_F(CacheManagerTest, ACheckpointWithinAForwardIsEnteredOnce) {
  CacheManager& cache = state(4);
  SequenceCache own;
  compute(own, ids(12), /*chunk=*/12);
  copies();
  cache.forget_checkpoints();
  std::vector<StateCheckpoint> taken;
  cache.take_checkpoints(0, 8, taken);
  cache.take_checkpoints(1, 8, taken);  // another sequence has the same tokens
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[1].request, 1);
  EXPECT_EQ(taken[1].rows, 8);
  EXPECT_EQ(cache.available(1), 0);
  std::vector<StateCheckpoint> more;
  cache.take_checkpoints(2, 8, more);
  EXPECT_THAT(more, IsEmpty()) << "no slot is left";
  for (const StateCheckpoint& checkpoint : taken) cache.enter_checkpoint(own, 8, checkpoint);
  EXPECT_EQ(cache.num_free(1), 1) << "the second slot was given back";
  cache.release(own);
  EXPECT_EQ(cache.count_known(ids(13)), 2);
  SequenceCache next;
  cache.find(next, ids(13));
  cache.admit(next, 14, 20);
  EXPECT_EQ(copies()[0].from, taken[0].slot);
  cache.release(next);
}

TEST_F(CacheManagerTest, CheckpointsOfAFailedForwardAreGivenBack) {
  CacheManager& cache = state(4);
  std::vector<StateCheckpoint> taken;
  cache.take_checkpoints(0, 8, taken);
  EXPECT_EQ(cache.num_free(1), 2);
  cache.forget_checkpoints();
  EXPECT_EQ(cache.num_free(1), 3);
}

TEST_F(CacheManagerTest, AnEndingSequencesSlotBecomesItsCheckpoint) {
  CacheManager& cache = state(3);
  SequenceCache own;
  compute(own, ids(12), /*chunk=*/16);
  const PageId slot = own.groups[1].pages[0];
  cache.take_pages(own, 12, 12);
  copies();
  cache.forget_checkpoints();
  cache.leave_checkpoint(own);
  cache.release(own);
  EXPECT_THAT(copies(), IsEmpty());
  EXPECT_EQ(cache.count_known(ids(13)), 3);
  SequenceCache next;
  cache.find(next, ids(13));
  cache.admit(next, 14, 20);
  EXPECT_THAT(copies(), ElementsAre(SlotCopy{.group = 1, .from = slot, .to = next.groups[1].pages[0]}));
  cache.release(next);
}

TEST_F(CacheManagerTest, TheLastSlotIsTakenFromTheCheckpointItself) {
  CacheManager& cache = state(2);  // page 0 is reserved, so there is one slot
  SequenceCache first;
  compute(first, ids(8));
  EXPECT_THAT(copies(), IsEmpty()) << "no slot is left for a checkpoint";
  const PageId slot = first.groups[1].pages[0];
  cache.leave_checkpoint(first);
  cache.release(first);
  SequenceCache second;
  EXPECT_EQ(compute(second, ids(9)), 8);
  EXPECT_EQ(second.groups[1].pages[0], slot);
  EXPECT_THAT(copies(), IsEmpty()) << "the state is there";
  EXPECT_EQ(cache.available(1), 0);
  cache.release(second);
}

TEST_F(CacheManagerTest, AdmissionCountsEveryGroup) {
  CacheManager& cache = make({{.num_pages = 100},
                              {.kind = kWindow, .window = 8, .num_pages = 100},
                              {.kind = kLatent, .num_pages = 100},
                              {.kind = kState, .num_pages = 10}});
  SequenceCache own;
  const auto needed = [&](std::int64_t tokens) {
    std::vector<std::int64_t> pages;
    for (std::size_t g = 0; g < 4; ++g) pages.push_back(cache.needed(g, own, tokens));
    return pages;
  };
  EXPECT_THAT(needed(40), ElementsAre(10, 3, 10, 1));
  EXPECT_THAT(needed(5), ElementsAre(2, 2, 2, 1));
  compute(own, ids(40));
  std::vector<std::int64_t> headroom;
  for (std::size_t g = 0; g < 4; ++g) headroom.push_back(cache.headroom(g, own, 40));
  EXPECT_THAT(headroom, ElementsAre(1, 1, 1, 0)) << "a window that lies in two pages may come to lie in three";
  cache.release(own);
}

}  // namespace
}  // namespace tessera
