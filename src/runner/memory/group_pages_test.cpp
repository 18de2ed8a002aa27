// Catches: in batches of the tools verify and soak, pages that the engine would never assign (a page of another group's
// pool, a page before a window, a page that two requests share, or a page outside the pool).
#include "tessera/runner/memory/group_pages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/runner/verify/soak_world.h"
#include "tessera/runner/verify/verify_batch.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using Kind = ir::CacheGroup::Kind;

constexpr std::int64_t kPage = 8;
const std::vector<ir::CacheGroup> kTwoGroups = {{.name = "full"},
                                                {.name = "window.12", .kind = Kind::kWindow, .window = 12},
                                                {.name = "state", .kind = Kind::kState}};

RunnerOptions options_of(std::vector<std::int64_t> num_pages) {
  RunnerOptions options;
  options.max_tokens = 48;
  options.max_requests = 4;
  options.context_length = 64;
  options.page_size = kPage;
  options.num_pages = std::move(num_pages);
  return options;
}

TEST(GroupPages, AreThePagesThatARowReaches) {
  const auto touched = [](std::size_t group, std::int64_t computed, std::int64_t length) {
    const PageRange span = pages_touched(kTwoGroups[group], computed, length, kPage);
    return std::pair(span.begin, span.end);
  };
  EXPECT_THAT(touched(0, 30, 41), Pair(0, 6));
  EXPECT_THAT(touched(1, 30, 41), Pair(2, 6)) << "row 30 sees tokens from 19 on";
  EXPECT_THAT(touched(1, 11, 12), Pair(0, 2));
  EXPECT_THAT(touched(2, 30, 41), Pair(0, 1));
}

TEST(GroupPages, SlotsLieInThePagesOfTheirPositions) {
  const auto slots = [](std::size_t group, const std::vector<PageId>& table) {
    CacheGroupBatch batch;
    append_slots(batch, kTwoGroups[group], 23, 25, kPage, table);
    return batch.slots;
  };
  EXPECT_THAT(slots(1, {PageId(0), PageId(7), PageId(5), PageId(9)}),
              ElementsAre(SlotId(5 * kPage + 7), SlotId(9 * kPage)));
  EXPECT_THAT(slots(2, {PageId(3)}), ElementsAre(SlotId(3), SlotId(3)));
}

// Checks for every group that tables are as long as the engine's, that no page appears twice, and that all pages are in
// the pool.
void check_pages(const ForwardBatch& batch, const RunnerOptions& options) {
  ASSERT_TRUE(batch.check().ok()) << batch.check().to_string();
  for (std::size_t g = 0; g < kTwoGroups.size(); ++g) {
    std::set<std::int32_t> owned;
    for (std::size_t b = 0; b < batch.query_lens.size(); ++b) {
      const std::int64_t computed = batch.kv_lens[b] - batch.query_lens[b];
      const PageRange span = pages_touched(kTwoGroups[g], computed, batch.kv_lens[b], kPage);
      const std::span<const PageId> table = batch.groups[g].page_tables[b].pages;
      ASSERT_EQ(std::ssize(table), span.end);
      for (std::int64_t p = 0; p < span.end; ++p) {
        const std::int32_t page = table[static_cast<std::size_t>(p)].value();
        if (p < span.begin) {
          EXPECT_EQ(page, 0);
          continue;
        }
        EXPECT_TRUE(owned.insert(page).second) << "group " << g << " page " << page;
        EXPECT_GT(page, 0);
        EXPECT_LT(page, options.num_pages[g]);
      }
    }
  }
}

TEST(VerifyBatch, HasPagesOfItsOwnInEachGroup) {
  const RunnerOptions options = options_of({64, 64, 64});
  for (const bool decode : {false, true}) {
    const VerifyBatch made = *make_verify_batch(
        {.options = options, .groups = kTwoGroups, .row_values = 4, .poisoned_id = TokenId(100)}, 4, decode);
    check_pages(made.batch, options);
    EXPECT_EQ(made.batch.groups[1].page_tables[0].pages[0], PageId(0)) << "before the window";
    for (std::size_t g = 0; g < kTwoGroups.size(); ++g) {
      EXPECT_EQ(made.pages[g].begin, g == 0 ? 1 : made.pages[g - 1].end) << "no id is in two groups";
      for (const PageTable& table : made.batch.groups[g].page_tables) {
        for (const PageId page : table.pages) {
          EXPECT_TRUE(page == PageId(0) || (page.value() >= made.pages[g].begin && page.value() < made.pages[g].end));
        }
      }
    }
  }
}

TEST(VerifyBatch, FitsSmallestPoolsAndNamesTooSmallOnes) {
  const auto made = [](const RunnerOptions& options) {
    return make_verify_batch({.options = options, .groups = kTwoGroups, .row_values = 4, .poisoned_id = TokenId(100)},
                             40, false);
  };
  const RunnerOptions fits = options_of({1 + 7, 1 + 7, 1 + 4});
  const Result<VerifyBatch> batch = made(fits);
  ASSERT_TRUE(batch.ok()) << batch.status().to_string();
  check_pages(batch->batch, fits);
  EXPECT_THAT(made(options_of({64, 5, 64})).status().message(), HasSubstr("cache group window.12, which has 4"));
}

TEST(VerifyBatch, DecodesWithFewStatesHaveTheMostDrafts) {
  const auto rows_of_requests = [](std::int64_t states) {
    RunnerOptions options = options_of({64, 64, 1 + states});
    options.max_requests = 12;
    const Result<VerifyBatch> made = make_verify_batch(
        {.options = options, .groups = kTwoGroups, .row_values = 4, .poisoned_id = TokenId(100), .max_drafts = 3}, 12,
        true);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) check_pages(made->batch, options);
    return made.ok() ? made->batch.query_lens : std::vector<std::int32_t>{};
  };
  EXPECT_THAT(rows_of_requests(5), ElementsAre(4, 1, 3, 2, 2));
  EXPECT_THAT(rows_of_requests(4), ElementsAre(4, 4, 4));
}

TEST(VerifyBatch, HasSeveralRowsEachWithinTheContext) {
  RunnerOptions options = options_of({200, 200, 200});
  for (std::int64_t context = 1; context <= 9; ++context) {
    options.context_length = context;
    for (std::int64_t size = 2; size <= 60; ++size) {
      SCOPED_TRACE(fmt::format("{} tokens, context of {}", size, context));
      const Result<VerifyBatch> made = make_verify_batch({.options = options,
                                                          .groups = kTwoGroups,
                                                          .row_values = 4,
                                                          .poisoned_id = TokenId(100),
                                                          .several_rows_each = true},
                                                         size, false);
      if (context == 1 || (context == 2 && size % 2 != 0)) {
        EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
        continue;
      }
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_EQ(made->batch.num_tokens(), size);
      for (std::size_t b = 0; b < made->batch.query_lens.size(); ++b) {
        EXPECT_GE(made->batch.query_lens[b], 2);
        EXPECT_LE(made->batch.kv_lens[b], context);
      }
    }
  }
}

TEST(SoakWorld, GivesSequencesPagesOfEachGroupsPool) {
  // Each list gives the number of pages in the pools of the three groups. The first list has plenty of pages, and the
  // last has the minimum.
  for (const std::vector<std::int64_t>& num_pages :
       {std::vector<std::int64_t>{64, 40, 9}, {33, 9, 3}, {17, 3, 2}, {2, 2, 2}}) {
    const RunnerOptions options = options_of(num_pages);
    SoakWorld world(options, kTwoGroups, 100, 4, 7);
    std::int32_t longest = 0;
    for (int i = 0; i < 400; ++i) {
      const ForwardBatch& batch = world.next();
      ASSERT_GT(batch.num_tokens(), 0);
      check_pages(batch, options);
      longest = std::max(longest, *std::ranges::max_element(batch.kv_lens));
    }
    EXPECT_GT(world.finished(), 0);
    if (num_pages[0] == 33) {
      EXPECT_GT(longest, 4 * kPage) << "half of the window's pool does not bound a sequence";
    }
  }
}

// A slot that a request wrote belongs to this request until the request frees the slot's page.
TEST(SoakWorld, NoPageChangesHandsWithoutBeingGivenBack) {
  const RunnerOptions options = options_of({33, 17, 5});
  SoakWorld world(options, kTwoGroups, 100, 4, 3);
  std::set<std::pair<std::size_t, std::int32_t>> written;
  for (int i = 0; i < 300; ++i) {
    const ForwardBatch& batch = world.next();
    for (const SoakWorld::GroupPage& page : world.given_back()) written.erase({page.group, page.page.value()});
    for (std::size_t g = 0; g < 2; ++g) {
      for (std::size_t b = 0; b < batch.query_lens.size(); ++b) {
        const std::int64_t computed = batch.kv_lens[b] - batch.query_lens[b];
        const std::span<const PageId> table = batch.groups[g].page_tables[b].pages;
        for (std::int64_t p = 0; p < std::ssize(table); ++p) {
          const std::int32_t page = table[static_cast<std::size_t>(p)].value();
          if (page == 0) continue;
          EXPECT_EQ(written.contains({g, page}), p * kPage < computed) << "batch " << i << " group " << g;
          written.insert({g, page});
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
