// Catches: drafts that cost more than they bring; drafts that are not made although they cost nothing; a request's
// improbable drafts that take the place of another request's probable ones; and a choice of drafts that ignores the
// time of the layer that makes them.
#include "tessera/engine/drafts/draft_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> chosen(const std::vector<DraftOffer>& offers, const DraftCosts& costs,
                                 std::int64_t room = 100) {
  DraftCounts counts;
  const std::span<const std::int64_t> made =
      counts.choose(offers, {.requests = std::ssize(offers), .room = room}, costs);
  return {made.begin(), made.end()};
}

// A forward of up to `flat` rows takes 10 ms, and each further row takes 0.1 ms.
DraftCosts flat_until(std::int64_t flat, double draft_ms = 0) {
  return {.forward_ms =
              [flat](std::int64_t rows, std::int64_t) {
                return std::optional(10 + 0.1 * static_cast<double>(std::max(rows - flat, std::int64_t{0})));
              },
          .draft_ms = [draft_ms] { return draft_ms; }};
}

TEST(DraftCounts, RowsThatCostNothingAreAllUsed) {
  EXPECT_THAT(chosen({{.acceptance = 0.9, .most = 3}, {.acceptance = 0.1, .most = 3}}, flat_until(8)),
              ElementsAre(3, 3));
  EXPECT_THAT(chosen({{.acceptance = 0.9, .most = 3}}, flat_until(8), 2), ElementsAre(2)) << "room for two";
  EXPECT_THAT(chosen({{.acceptance = 0, .most = 3}, {.acceptance = 0.9, .most = 0}}, flat_until(8)), ElementsAre(0, 0));
}

TEST(DraftCounts, EachDraftMustBringWhatItsRowCosts) {
  const DraftCosts dear{
      .forward_ms = [](std::int64_t rows, std::int64_t) { return std::optional(static_cast<double>(rows)); }};
  EXPECT_THAT(chosen({{.acceptance = 0.99, .most = 3}}, dear), ElementsAre(0)) << "time is proportional to rows";
  const DraftCosts half{
      .forward_ms = [](std::int64_t rows, std::int64_t) { return std::optional(1 + 0.5 * static_cast<double>(rows)); }};
  EXPECT_THAT(chosen({{.acceptance = 0.5, .most = 4}}, half), ElementsAre(1)) << "1.5 of 2 ms, then 1.75 of 2.5 ms";
  EXPECT_THAT(chosen({{.acceptance = 0.9, .most = 4}, {.acceptance = 0.2, .most = 4}}, half), ElementsAre(4, 0));
}

TEST(DraftCounts, FindsACheapCountAfterACostlyOne) {
  // A forward of more than one row is padded and takes 2.5 ms. One draft does not pay for that, but two may.
  const DraftCosts padded{
      .forward_ms = [](std::int64_t rows, std::int64_t) { return std::optional(rows == 1 ? 1.0 : 2.5); }};
  EXPECT_THAT(chosen({{.acceptance = 0.9, .most = 2}}, padded), ElementsAre(2)) << "2.71 tokens of 2.5 ms";
  EXPECT_THAT(chosen({{.acceptance = 0.7, .most = 2}}, padded), ElementsAre(0)) << "2.19 tokens of 2.5 ms";
}

TEST(DraftCounts, BesidePromptsADraftCostsARow) {
  // A decode of one row takes 10 ms, and each row of a step with prompts takes 0.5 ms. The step has one decode and 99
  // rows of prompts.
  DraftCosts costs = flat_until(1, 2);
  costs.prompts_ms = [](std::int64_t rows) { return std::optional(0.5 * static_cast<double>(rows)); };
  DraftCounts counts;
  bool full = true;
  const auto of = [&](const DraftOffer& offer, std::int64_t room = 9) {
    return counts.choose(std::vector{offer}, {.requests = 1, .room = room, .prompt_rows = 99, .is_full = full},
                         costs)[0];
  };
  EXPECT_EQ(of({.acceptance = 0.5, .most = 9}), 4) << "drafts save 5, 2.5, 1.25, 0.63 and 0.31 ms";
  EXPECT_EQ(counts.saving()->decode_ms(), 0);
  EXPECT_NEAR(counts.saving()->gained_ms, 5 + 2.5 + 1.25 + 0.625, 1e-9);
  EXPECT_NEAR(counts.saving()->taken_ms, 4 * 0.5, 1e-9);
  EXPECT_NEAR(counts.saving()->predicted_ms, 50 + 4 * 0.5, 1e-9);
  EXPECT_TRUE(counts.saving()->has_prompts);
  EXPECT_EQ(of({.acceptance = 0.5, .most = 9}, 2), 2) << "room for two";
  EXPECT_EQ(of({.acceptance = 0.5, .most = 9, .by_layer = true}), 1) << "the layer takes 2 ms a draft";
  EXPECT_EQ(of({.acceptance = 0.04, .most = 9}), 0) << "0.4 ms saved for 0.5";
  full = false;  // padding to 104 rows leaves room for 104 - 1 - 99 = 4 drafts
  costs.prompts_ms = [](std::int64_t rows) { return std::optional(rows <= 104 ? 50.0 : 65.0); };
  EXPECT_EQ(of({.acceptance = 0.04, .most = 9}), 4) << "padding is computed anyway";
  EXPECT_EQ(of({.acceptance = 0.8, .most = 9}), 4) << "five more save 11 of 15 ms";
  costs.prompts_ms = [](std::int64_t) { return std::optional<double>(); };
  EXPECT_EQ(of({.acceptance = 0.04, .most = 9}), 1) << "unknown costs: rows are cheap";
}

TEST(DraftCounts, AMeasuredSlowdownCountsAgainstDrafts) {
  DraftCosts costs = flat_until(100);
  const std::vector<DraftOffer> one{{.acceptance = 0.4, .most = 1}};
  DraftCounts counts;
  EXPECT_THAT(counts.choose(one, {.requests = 1, .room = 9}, costs), ElementsAre(1));
  EXPECT_DOUBLE_EQ(counts.saving()->decode_ms(), 10);
  EXPECT_DOUBLE_EQ(counts.saving()->gained_ms, 4) << "0.4 tokens of 10 ms";
  EXPECT_DOUBLE_EQ(counts.saving()->taken_ms, 0);
  EXPECT_DOUBLE_EQ(counts.saving()->predicted_ms, 10);
  EXPECT_FALSE(counts.saving()->has_prompts);
  costs.slowdown = [](std::int64_t requests) { return requests == 1 ? 1.3 : 1; };
  EXPECT_THAT(counts.choose(one, {.requests = 1, .room = 9}, costs), ElementsAre(1)) << "1.4 tokens in 13 ms";
  EXPECT_DOUBLE_EQ(counts.saving()->decode_ms(), 10) << "without the slowdown";
  EXPECT_DOUBLE_EQ(counts.saving()->taken_ms, 0) << "without the slowdown";
  costs.slowdown = [](std::int64_t) { return 1.4; };
  EXPECT_THAT(counts.choose(one, {.requests = 1, .room = 9}, costs), ElementsAre(0)) << "1.4 tokens in 14 ms";
  EXPECT_EQ(counts.saving()->decode_ms(), 0);
  EXPECT_EQ(counts.saving()->gained_ms, 0);
  EXPECT_EQ(counts.saving()->taken_ms, 0);
}

TEST(DraftCounts, TheLayersTimeCounts) {
  const std::vector<DraftOffer> one{{.acceptance = 0.5, .most = 3, .by_layer = true}};
  EXPECT_THAT(chosen(one, flat_until(8, 1)), ElementsAre(2)) << "1.5 of 11, 1.75 of 12, 1.88 of 13 ms";
  EXPECT_THAT(chosen(one, flat_until(8, 6)), ElementsAre(0));
}

TEST(DraftCounts, WithoutMeasurementsAForwardOfFewRowsIsCheap) {
  EXPECT_THAT(chosen({{.acceptance = 0.8, .most = 3}}, {}), ElementsAre(3));
  const std::vector<DraftOffer> many(40, {.acceptance = 0.8, .most = 3});
  std::int64_t sum = 0;
  for (const std::int64_t count : chosen(many, {})) sum += count;
  EXPECT_EQ(sum, 24) << "64 rows at most";
  DraftCounts counts;
  counts.choose(many, {.requests = 40, .room = 100}, {});
  EXPECT_FALSE(counts.saving());
}

}  // namespace
}  // namespace tessera
