// Tests the plans that assign tiles of query rows and chunks of keys to blocks. Catches: tiles or chunks that are left
// out, are planned twice, or lie past the end of their request; grids that depend on lengths; chunks that do not fit in
// the grid; and padding blocks that compute.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/ops/attention/attention_schedule.h"
#include "tessera/ops/attention/random_lens_test_util.h"

namespace tessera {
namespace {

using testing::random_lens;

// The work lists of a launch. They are filled with values that plans never write, so that tests find unwritten entries.
struct Blocks {
  explicit Blocks(std::int64_t blocks, std::int64_t rows)
      : requests(static_cast<std::size_t>(blocks), -1),
        tiles(requests),
        chunks(requests),
        starts(static_cast<std::size_t>(rows) + 1, -1),
        valid(static_cast<std::size_t>(blocks), 9) {}
  BlockPlan plan() { return {requests.data(), tiles.data(), chunks.data(), starts.data(), &chunk_size, valid.data()}; }
  std::vector<std::int32_t> requests, tiles, chunks, starts;
  std::int32_t chunk_size = -1;
  std::vector<std::uint8_t> valid;
};

TEST(PlanTiles, PacksTheHeadsOfAToken) {
  Blocks blocks(10, 0);
  const std::vector<std::int32_t> lens = {1, 33, 16};
  EXPECT_EQ(plan_tiles({.query_lens = lens, .kv_lens = lens}, /*group=*/4, /*tile_rows=*/64, 10, blocks.plan()), 5);
  EXPECT_THAT(blocks.requests, ::testing::ElementsAre(0, 1, 1, 1, 2, 0, 0, 0, 0, 0));
  EXPECT_THAT(blocks.tiles, ::testing::ElementsAre(0, 2, 1, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(blocks.valid, ::testing::ElementsAre(1, 1, 1, 1, 1, 0, 0, 0, 0, 0));
}

TEST(PlanTiles, SkipsRequestsWithFewRows) {
  Blocks blocks(4, 0);
  const std::vector<std::int32_t> lens = {1, 3, 1};
  EXPECT_EQ(plan_tiles({.query_lens = lens, .kv_lens = lens, .least_rows = 2}, 4, 64, 4, blocks.plan()), 1);
  EXPECT_THAT(blocks.requests, ::testing::ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(blocks.valid, ::testing::ElementsAre(1, 0, 0, 0));
}

// The indices in first_rows count tokens, whereas a tile of 64 rows has 64 / 4 = 16 tokens with 4 query heads each.
TEST(PlanTiles, SkipsTilesBeforeTheFirstRow) {
  Blocks blocks(6, 0);
  const std::vector<std::int32_t> lens = {40, 33, 16, 20};
  const std::vector<std::int32_t> first = {39, 16, 16, 15};
  EXPECT_EQ(plan_tiles({.query_lens = lens, .kv_lens = lens, .first_rows = first}, 4, 64, 6, blocks.plan()), 5);
  EXPECT_THAT(blocks.requests, ::testing::ElementsAre(0, 1, 1, 3, 3, 0));
  EXPECT_THAT(blocks.tiles, ::testing::ElementsAre(2, 2, 1, 1, 0, 0));
  EXPECT_THAT(blocks.valid, ::testing::ElementsAre(1, 1, 1, 1, 1, 0));
}

TEST(PlanTiles, TilesAlwaysFitTheBlocks) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const std::vector<std::int32_t> lens = random_lens(1 + seed % 7, 300, seed);
    std::int64_t rows = 0;
    std::int64_t tiles = 0;
    for (const std::int32_t len : lens) {
      rows += len * 3;
      tiles += (len * 3 + 63) / 64;
    }
    const std::int64_t most = most_tiles(rows, static_cast<std::int64_t>(lens.size()), 64);
    ASSERT_LE(tiles, most);
    Blocks blocks(most, 0);
    EXPECT_EQ(plan_tiles({.query_lens = lens, .kv_lens = lens}, 3, 64, most, blocks.plan()), tiles);
    EXPECT_EQ(std::count(blocks.valid.begin(), blocks.valid.end(), 1), tiles);
    EXPECT_EQ(std::count(blocks.valid.begin(), blocks.valid.end(), 9), 0);
  }
}

constexpr ChunkLimits kLimits{.kv_heads = 8, .max_kv_len = 4096, .resident_blocks = 264};

TEST(ChunkGrid, SplitsWhereRequestsAreFew) {
  EXPECT_EQ(chunk_grid(0, kLimits).blocks, 0);
  EXPECT_EQ(chunk_grid(1, kLimits).blocks, 32) << "no more chunks than a request can have";
  EXPECT_EQ(chunk_grid(2, kLimits).blocks, 33) << "what the device runs at once";
  EXPECT_EQ(chunk_grid(32, kLimits).blocks, 33);
  EXPECT_EQ(chunk_grid(33, kLimits).blocks, 66);
  EXPECT_EQ(chunk_grid(98, kLimits).blocks, 131);
  EXPECT_TRUE(chunk_grid(98, kLimits).split);
  EXPECT_EQ(chunk_grid(99, kLimits).blocks, 99);
  EXPECT_FALSE(chunk_grid(99, kLimits).split);
}

// A launch that was recorded for some number of requests must have enough blocks for any smaller number.
TEST(SingleRowGrid, GrowsWithTheRequests) {
  for (std::int64_t requests = 1; requests < 200; ++requests) {
    EXPECT_LE(single_row_grid(requests - 1, kLimits).blocks, single_row_grid(requests, kLimits).blocks);
    EXPECT_TRUE(single_row_grid(requests, kLimits).split);
  }
}

// Checks that a plan cuts single-row requests into chunks and gives requests of several rows no block.
void check_chunks(const std::vector<std::int32_t>& query_lens, const std::vector<std::int32_t>& kv_lens,
                  std::int64_t rows, const ChunkGrid& grid, std::int64_t window) {
  Blocks blocks(grid.blocks, rows);
  const std::int64_t used = plan_chunks(query_lens, kv_lens, rows, grid, window, blocks.plan());
  std::size_t block = 0;
  for (std::size_t b = 0; b < kv_lens.size(); ++b) {
    EXPECT_EQ(blocks.starts[b], static_cast<std::int32_t>(block));
    if (query_lens[b] != 1) continue;
    const std::int64_t keys = window > 0 ? std::min<std::int64_t>(window, kv_lens[b]) : kv_lens[b];
    for (std::int64_t chunk = 0; chunk * blocks.chunk_size < keys; ++chunk, ++block) {
      ASSERT_LT(block, blocks.valid.size()) << "chunks pass the grid";
      EXPECT_EQ(blocks.requests[block], static_cast<std::int32_t>(b));
      EXPECT_EQ(blocks.chunks[block], chunk);
      EXPECT_EQ(blocks.tiles[block], 0);
      EXPECT_EQ(blocks.valid[block], 1);
    }
  }
  EXPECT_EQ(used, static_cast<std::int64_t>(block));
  for (auto row = kv_lens.size(); row <= static_cast<std::size_t>(rows); ++row)
    EXPECT_EQ(blocks.starts[row], static_cast<std::int32_t>(block)) << "padding has no chunk";
  for (; block < blocks.valid.size(); ++block) EXPECT_EQ(blocks.valid[block], 0) << block;
}

TEST(PlanChunks, CoversEveryKeyOnce) {
  for (const std::int64_t rows : {1, 2, 5, 32, 33, 64, 120})
    for (const std::int64_t window : {0, 1, 500})
      for (std::uint32_t seed = 0; seed < 20; ++seed) {
        const auto requests = static_cast<std::size_t>(1 + seed % rows);
        check_chunks(std::vector<std::int32_t>(requests, 1), random_lens(requests, 4096, seed), rows,
                     chunk_grid(rows, kLimits), window);
      }
  check_chunks({}, {}, 4, chunk_grid(4, kLimits), 0);
}

TEST(PlanChunks, PlansOnlySingleRowRequests) {
  for (const std::int64_t window : {0, 500})
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
      const std::vector<std::int32_t> kv_lens = random_lens(1 + seed * 3, 4096, seed);
      std::vector<std::int32_t> query_lens = random_lens(kv_lens.size(), 2, seed + 100);
      for (std::size_t b = 0; b < kv_lens.size(); ++b) query_lens[b] = std::min(query_lens[b], kv_lens[b]);
      const auto single_rows = std::count(query_lens.begin(), query_lens.end(), 1);
      check_chunks(query_lens, kv_lens, 200, single_row_grid(single_rows, kLimits), window);
    }
}

// The keys of a long row are cut into chunks even if many rows with few keys run in the same launch.
TEST(PlanChunks, CutsTheLongestRows) {
  std::vector<std::int32_t> kv_lens(200, 500);
  kv_lens[150] = 8000;
  const ChunkGrid grid = single_row_grid(200, kLimits);
  Blocks blocks(grid.blocks, 200);
  plan_chunks(std::vector<std::int32_t>(200, 1), kv_lens, 200, grid, 0, blocks.plan());
  EXPECT_EQ(blocks.chunk_size, 500);
}

// Block b processes request b, even if padding leaves blocks unused.
TEST(PlanChunks, BlocksMatchRequestsIfKeysAreNotCut) {
  const std::vector<std::int32_t> kv_lens = random_lens(100, 4096, 1);
  const ChunkGrid grid = chunk_grid(120, kLimits);
  ASSERT_FALSE(grid.split);
  Blocks blocks(grid.blocks, 120);
  EXPECT_EQ(plan_chunks(std::vector<std::int32_t>(100, 1), kv_lens, 120, grid, 0, blocks.plan()), 100);
  for (std::int32_t b = 0; b < 100; ++b) EXPECT_EQ(blocks.requests[static_cast<std::size_t>(b)], b);
}

TEST(PlanChunks, FillsTheGridWithoutTinyChunks) {
  const ChunkGrid grid = chunk_grid(2, kLimits);
  Blocks blocks(grid.blocks, 2);
  const std::vector<std::int32_t> ones = {1, 1};
  plan_chunks(ones, std::vector<std::int32_t>{4096, 4096}, 2, grid, 0, blocks.plan());
  EXPECT_EQ(blocks.chunk_size, 256) << "16 chunks each, of 33 blocks";
  plan_chunks(ones, std::vector<std::int32_t>{100, 300}, 2, grid, 0, blocks.plan());
  EXPECT_EQ(blocks.chunk_size, kLeastChunk);
}

// A launch that was recorded for many requests runs a step of one prompt. None of the kernels' lists may contain an
// unused request slot.
TEST(UnusedRequestSlots, HaveNoWork) {
  constexpr std::int64_t kMostRequests = 512;
  constexpr std::int64_t kMostTokens = 2048;
  constexpr std::int64_t kHeads = 16;
  const std::vector<std::int32_t> prompt = {300};

  TileSchedule schedule(kMostTokens, kMostRequests, {kHeads}, 128, 132);
  std::vector<std::int32_t> starts(133, -1);
  std::vector<TileWork> works(static_cast<std::size_t>(schedule.max_works()), TileWork{9, 9, 9});
  const TiledRows rows{.query_lens = prompt, .kv_lens = prompt, .least_rows = 2};
  EXPECT_EQ(schedule.assign(rows, starts, works), 3 * kHeads) << "the prompt's three tiles";
  EXPECT_EQ(starts.back(), 3 * kHeads);
  for (std::size_t i = 0; i < 3 * kHeads; ++i) EXPECT_EQ(works[i].request, 0);

  Blocks tiles(most_tiles(2 * kMostTokens, kMostRequests, 64), 0);
  EXPECT_EQ(plan_tiles(rows, 2, 64, std::ssize(tiles.valid), tiles.plan()), 10);
  EXPECT_EQ(std::ranges::count(tiles.valid, 1), 10);
  EXPECT_EQ(std::ranges::count(tiles.valid, 0), std::ssize(tiles.valid) - 10);

  const ChunkGrid grid = single_row_grid(kMostRequests, kLimits);
  Blocks chunks(grid.blocks, kMostRequests);
  EXPECT_EQ(plan_chunks(prompt, prompt, kMostRequests, grid, 0, chunks.plan()), 0);
  EXPECT_EQ(std::ranges::count(chunks.valid, 0), grid.blocks);
  EXPECT_EQ(std::ranges::count(chunks.starts, 0), kMostRequests + 1) << "no chunk to merge either";
}

}  // namespace
}  // namespace tessera
