// The rows of an image are the vision tower's outputs for the image. Catches: an image's tokens that are computed
// without its rows; a chunk that finds no room for rows although unused rows could be evicted; lost rows; an image that
// is encoded twice; and three-dimensional positions that are given to the wrong tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/engine/schedule/scheduler_test_util.h"

namespace tessera {
namespace {

using test::finish_step;
using test::next_step;
using test::sequence;
using test::shown;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kPlaceholder{50};

// Puts a square image of side² tokens into the sequence's prompt.
void put_image(Sequence& to, std::int64_t first, std::int64_t side, std::uint64_t content) {
  for (std::int64_t i = 0; i < side * side; ++i)
    to.request.prompt[static_cast<std::size_t>(first + i)] = to.tokens[static_cast<std::size_t>(first + i)] =
        kPlaceholder;
  to.images.push_back({.first_token = first, .count = side * side, .content = {.high = content, .low = 0}});
  to.image_rows.push_back(nullptr);
  std::vector<TokenGrid> grids;
  for (const ImageSpan& span : to.images)
    grids.push_back({.first_token = span.first_token, .rows = side, .columns = side});
  to.rope.emplace(grids);
}

std::vector<std::uint64_t> encoded(const ScheduledBatch& step) {
  std::vector<std::uint64_t> contents;
  for (const ScheduledBatch::ImageUse& use : step.images)
    if (!use.is_written) contents.push_back(use.content.high);
  return contents;
}

TEST(ImageScheduling, AChunkMayEndWithinAnImage) {
  Scheduler scheduler({.limits = {.max_tokens = 4}}, paged_cache(100, test::kPageSize));
  scheduler.grow_embeddings(4);
  std::unique_ptr<Sequence> made = sequence(1, 9, 2);
  put_image(*made, 2, 2, 7);
  scheduler.add(std::move(made));
  ScheduledBatch step = next_step(scheduler);
  EXPECT_EQ(shown(step), "1:4");
  EXPECT_THAT(encoded(step), ElementsAre(7));
  EXPECT_THAT(step.batch.embedding_rows, ElementsAre(-1, -1, 0, 1));
  EXPECT_THAT(step.rope_positions[1], ElementsAre(0, 1, 2, 2));
  EXPECT_THAT(step.rope_positions[2], ElementsAre(0, 1, 2, 3));
  finish_step(scheduler, step);
  step = next_step(scheduler);
  EXPECT_THAT(encoded(step), IsEmpty());
  EXPECT_THAT(step.batch.embedding_rows, ElementsAre(2, 3, -1, -1));
  EXPECT_THAT(step.batch.positions, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(step.rope_positions[0], ElementsAre(2, 2, 4, 5));
  EXPECT_THAT(step.rope_positions[1], ElementsAre(3, 3, 4, 5));
  finish_step(scheduler, step);
  finish_step(scheduler, next_step(scheduler));
  step = next_step(scheduler);  // a decode step
  EXPECT_THAT(step.batch.embedding_rows, IsEmpty());
  EXPECT_THAT(step.batch.positions, ElementsAre(9));
  EXPECT_THAT(step.rope_positions[2], ElementsAre(7));
}

TEST(ImageScheduling, TokensBesideImagesKeepTheirPlaces) {
  Scheduler scheduler({.limits = {.max_tokens = 16}}, paged_cache(100, test::kPageSize));
  scheduler.grow_embeddings(4);
  scheduler.add(sequence(1, 3, 2));
  std::unique_ptr<Sequence> made = sequence(2, 6, 2);
  put_image(*made, 1, 2, 7);
  scheduler.add(std::move(made));
  scheduler.add(sequence(3, 2, 2));
  const ScheduledBatch step = next_step(scheduler);
  EXPECT_EQ(shown(step), "1:3* 2:6* 3:2*");
  EXPECT_THAT(step.rope_positions[2], ElementsAre(0, 1, 2, 0, 1, 2, 1, 2, 3, 0, 1));
  EXPECT_THAT(step.batch.embedding_rows, ElementsAre(-1, -1, -1, -1, 0, 1, 2, 3, -1, -1, -1));
}

// Two prompts share one image, which is encoded once. Prompts with other images wait while there are no rows.
TEST(ImageScheduling, RowsAreSharedAndWaitedFor) {
  Scheduler scheduler({.limits = {.max_tokens = 64}, .prefix_cache = false}, paged_cache(100, test::kPageSize));
  scheduler.grow_embeddings(6);
  for (const std::int64_t id : {1, 2, 3}) {
    std::unique_ptr<Sequence> made = sequence(id, 8, 1);
    put_image(*made, 1, 2, id == 3 ? 9 : 7);
    scheduler.add(std::move(made));
  }
  ScheduledBatch step = next_step(scheduler);
  EXPECT_EQ(shown(step), "1:8* 2:8* 3:1");
  EXPECT_THAT(encoded(step), ElementsAre(7));
  finish_step(scheduler, step);
  step = next_step(scheduler);
  EXPECT_EQ(shown(step), "3:7*");
  EXPECT_THAT(encoded(step), ElementsAre(9));
  finish_step(scheduler, step);
  EXPECT_TRUE(scheduler.idle());
  EngineStats stats;
  scheduler.report(stats);
  EXPECT_EQ(stats.images.images, 3);
  EXPECT_EQ(stats.images.image_tokens, 12);
  EXPECT_EQ(stats.images.cache_hits, 0) << "those of 1 were not there before";
}

TEST(ImageScheduling, RowsOfAFailedForwardAreEncodedAgain) {
  Scheduler scheduler({.limits = {.max_tokens = 64}}, paged_cache(100, test::kPageSize));
  scheduler.grow_embeddings(4);
  for (const std::int64_t id : {1, 2}) {
    std::unique_ptr<Sequence> made = sequence(id, 8, 1);
    put_image(*made, 1, 2, 7);
    scheduler.add(std::move(made));
    const ScheduledBatch step = next_step(scheduler);
    EXPECT_THAT(encoded(step), ElementsAre(7)) << id;
    scheduler.remove(RequestId(id), true);
    scheduler.forget_results(step);
  }
}

// The image of one sequence takes all four embedding rows until that sequence's prompt is computed. The other sequence
// has a higher priority and waits for rows. This wait must not stop the first sequence.
TEST(ImageScheduling, AWaitingPromptDoesNotBlockHoldersOfRows) {
  Scheduler scheduler({.limits = {.max_tokens = 4}}, paged_cache(100, test::kPageSize), {}, [] { return 2; });
  scheduler.grow_embeddings(4);
  std::unique_ptr<Sequence> holder = sequence(1, 9, 1);
  put_image(*holder, 2, 2, 7);
  scheduler.add(std::move(holder));
  ScheduledBatch step = next_step(scheduler);
  EXPECT_EQ(shown(step), "1:4");
  finish_step(scheduler, step);
  std::unique_ptr<Sequence> first = sequence(2, 9, 1);
  first->request.priority = 1;
  put_image(*first, 0, 2, 8);
  scheduler.add(std::move(first));
  const std::vector<std::string> steps = test::all_steps(scheduler);
  EXPECT_TRUE(scheduler.idle());
  for (const std::string& shown : steps) EXPECT_FALSE(shown.empty());
}

}  // namespace
}  // namespace tessera
