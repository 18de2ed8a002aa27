// A cache group consists of layers that share a page table and a pool of pages. Catches: groups that together exceed
// the given bytes; bytes that stay unused; a group of sliding-window layers that gets pages for the whole context; and
// a group that is too small for the running sequences.
#include "tessera/engine/cache/cache_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using enum ir::CacheGroup::Kind;

CacheDemand demand(std::vector<CacheGroupOptions> groups) {
  return {.groups = std::move(groups), .limits = {.max_tokens = 2048, .page_size = 16}, .max_running = 8};
}

TEST(CacheShares, OnePagedGroupGetsAllBytes) {
  const CacheDemand d = demand({{.page_bytes = 100}});
  EXPECT_EQ(fitting_context_pages(d, 1000, 9999), 99);
  EXPECT_EQ(fitting_context_pages(d, 50, 9999), 50) << "no more is useful";
  EXPECT_EQ(fitting_context_pages(d, 1000, 99), 0);
  EXPECT_EQ(sized_groups(d, 99)[0].num_pages, 100);
}

TEST(CacheShares, AWindowGroupGetsAllWindowsAndAChunk) {
  const CacheDemand d = demand({{.page_bytes = 100}, {.kind = kWindow, .window = 64, .page_bytes = 500}});
  // A window of 64 tokens lies in up to 5 pages. Each of 8 sequences has one more page. A chunk has 2048 / 16 = 128
  // pages.
  EXPECT_EQ(pages_of_group(d, 1, 10000), 8 * 6 + 128);
  EXPECT_EQ(pages_of_group(d, 1, 100), 100) << "as many as the context has";
  EXPECT_EQ(cache_bytes(d, 10000), 10000 * 100 + 176 * 500);
  EXPECT_EQ(fitting_context_pages(d, 100000, 10000 * 100 + 176 * 500), 10000);
}

TEST(CacheShares, AWindowAloneServesAnyContext) {
  const CacheDemand d = demand({{.kind = kWindow, .window = 64, .page_bytes = 500}});
  EXPECT_EQ(fitting_context_pages(d, 1 << 20, 176 * 500), 1 << 20);
  EXPECT_EQ(fitting_context_pages(d, 1 << 20, 176 * 500 - 1), 175);
}

TEST(CacheShares, StatesGrowToTwoForEachSequence) {
  const CacheDemand d = demand({{.page_bytes = 100}, {.kind = kState, .page_bytes = 100000}});
  EXPECT_EQ(pages_of_group(d, 1, 1), 2) << "one sequence and its checkpoint";
  EXPECT_EQ(pages_of_group(d, 1, 64), 2);
  EXPECT_EQ(pages_of_group(d, 1, 65), 4);
  EXPECT_EQ(pages_of_group(d, 1, 10000), 16);
  EXPECT_EQ(fitting_context_pages(d, 10000, 199999), 0) << "not even one sequence";
}

TEST(CacheShares, SharesFitAndOnePageMoreWouldNot) {
  const CacheDemand d = demand({{.page_bytes = 768},
                                {.kind = kWindow, .window = 100, .page_bytes = 3000},
                                {.kind = kLatent, .page_bytes = 333},
                                {.kind = kState, .page_bytes = 20000}});
  for (std::int64_t bytes = 50000; bytes < 40000000; bytes = bytes * 3 / 2 + 77) {
    const std::int64_t pages = fitting_context_pages(d, 1 << 20, bytes);
    ASSERT_GT(pages, 0);
    EXPECT_LE(cache_bytes(d, pages), bytes);
    EXPECT_GT(cache_bytes(d, pages + 1), bytes);
  }
}

}  // namespace
}  // namespace tessera
