// Tests how TileSchedule assigns tiles of query rows to workers. Catches: tiles or their parts that are left out, are
// assigned twice, or lie past the end of their request; and a worker with far more work than another.
#include "tessera/ops/attention/attention_schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "tessera/ops/attention/random_lens_test_util.h"

namespace tessera {
namespace {

using testing::random_lens;

constexpr std::int64_t kTileRows = 128;

struct Assignment {
  std::vector<std::int32_t> starts;
  std::vector<TileWork> works;
};

Assignment assign(const std::vector<std::int32_t>& query_lens, const std::vector<std::int32_t>& kv_lens,
                  const TileUnits& units, std::int64_t workers, std::int64_t least_rows = 1,
                  const std::vector<std::int32_t>& first_rows = {}, std::int64_t key_block = 0,
                  std::int64_t window = 0) {
  std::int64_t tokens = 0;
  for (const std::int32_t len : query_lens) tokens += len;
  TileSchedule schedule(tokens, static_cast<std::int64_t>(query_lens.size()), units, kTileRows, workers, key_block,
                        window);
  Assignment out;
  out.starts.resize(static_cast<std::size_t>(schedule.workers()) + 1, -1);
  out.works.resize(static_cast<std::size_t>(schedule.max_works()));
  const std::int64_t count = schedule.assign({query_lens, kv_lens, least_rows, first_rows}, out.starts, out.works);
  EXPECT_LE(count, schedule.max_works());
  out.works.resize(static_cast<std::size_t>(count));
  return out;
}

TEST(TileSchedule, AssignsEveryTileAndHeadOnce) {
  for (const std::int64_t workers : {1, 3, 132}) {
    const std::vector<std::int32_t> query_lens = {1, 128, 129, 1000, 5};
    const std::vector<std::int32_t> kv_lens = {700, 128, 2000, 1000, 6};
    const Assignment a = assign(query_lens, kv_lens, {4}, workers);
    EXPECT_EQ(a.starts.front(), 0);
    EXPECT_EQ(a.starts.back(), static_cast<std::int32_t>(a.works.size()));
    EXPECT_TRUE(std::is_sorted(a.starts.begin(), a.starts.end()));
    std::set<std::tuple<int, int, int>> given;
    for (const TileWork& work : a.works) {
      const auto b = static_cast<std::size_t>(work.request);
      ASSERT_LT(b, query_lens.size());
      EXPECT_LT(work.tile * kTileRows, query_lens[b]);
      EXPECT_LT(work.unit, 4);
      EXPECT_TRUE(given.emplace(work.request, work.tile, work.unit).second) << "given twice";
    }
    EXPECT_EQ(given.size(), (1U + 1 + 2 + 8 + 1) * 4);
  }
}

// A pair is a tile of even index and the tile after it. If a request has an odd number of tiles, its last pair has only
// one tile.
TEST(TileSchedule, AssignsEveryPairOfTilesOnce) {
  const std::vector<std::int32_t> query_lens = {1, 128, 129, 1000, 300};
  const std::vector<std::int32_t> kv_lens = {700, 128, 2000, 1000, 306};
  for (const std::int64_t key_block : {0, 128}) {
    const Assignment a = assign(query_lens, kv_lens, {.per_tile = 2, .per_pair = 3}, 7, 1, {}, key_block);
    std::set<std::tuple<int, int, int>> given;
    for (const TileWork& work : a.works) {
      EXPECT_LT(work.tile * kTileRows, query_lens[static_cast<std::size_t>(work.request)]);
      EXPECT_LT(work.unit, 5);
      EXPECT_TRUE(work.unit < 2 || work.tile % 2 == 0);
      EXPECT_TRUE(given.emplace(work.request, work.tile, work.unit).second || work.part > 0) << "given twice";
    }
    EXPECT_EQ(given.size(), (1U + 1 + 2 + 8 + 3) * 2 + (1U + 1 + 1 + 4 + 2) * 3) << key_block;
  }
}

// The first request wants only its last row, which is in tile 1. The pair of tile 1 begins at tile 0. The second
// request wants a row of tile 2, which has no tile after it.
TEST(TileSchedule, AssignsThePairOfAWantedTile) {
  const Assignment a = assign({256, 384}, {256, 384}, {.per_pair = 1}, 2, 1, {255, 383});
  std::set<std::pair<int, int>> given;
  for (const TileWork& work : a.works) given.emplace(work.request, work.tile);
  EXPECT_THAT(given, ::testing::ElementsAre(std::pair(0, 0), std::pair(1, 2)));
  EXPECT_EQ(a.works.size(), 2U);
}

TEST(TileSchedule, SkipsRequestsWithFewRows) {
  const Assignment a = assign({1, 128, 1, 2}, {700, 128, 2000, 6}, {4}, 3, /*least_rows=*/2);
  std::set<int> requests;
  for (const TileWork& work : a.works) requests.insert(work.request);
  EXPECT_THAT(requests, ::testing::ElementsAre(1, 3));
  EXPECT_EQ(a.works.size(), 2U * 4);
  EXPECT_TRUE(assign({1, 1}, {700, 3}, {4}, 3, 2).works.empty());
}

// A request's entry of first_rows is the first row to compute. A tile is left out only if all its rows come before that
// row. The cases include a first row that is the first or the last row of a tile.
TEST(TileSchedule, SkipsTilesBeforeTheFirstRow) {
  const std::vector<std::int32_t> query_lens = {1000, 256, 256, 300, 5, 1};
  const Assignment a =
      assign(query_lens, {1000, 700, 256, 300, 5, 90}, {4}, 3, /*least_rows=*/1, {999, 128, 127, 300, 0, 0});
  std::set<std::pair<int, int>> tiles;
  for (const TileWork& work : a.works) tiles.emplace(work.request, work.tile);
  EXPECT_EQ(a.works.size(), tiles.size() * 4);
  EXPECT_THAT(tiles, ::testing::ElementsAre(std::pair(0, 7), std::pair(1, 1), std::pair(2, 0), std::pair(2, 1),
                                            std::pair(4, 0), std::pair(5, 0)));
  EXPECT_EQ(a.starts.back(), static_cast<std::int32_t>(a.works.size()));
}

// With a window, the kernel "fa3" supports only tiles whose keys are not cut into parts. The part that finishes last
// merges the results of all parts. "fa3" recognises this part by a count of finished parts. With a window, "fa3" skips
// a part whose keys all lie before the window. The count would then stay incomplete, and nothing would be merged.
TEST(TileSchedule, CutsNothingWithAWindow) {
  for (const TileWork& work : assign({16}, {100'000}, {16}, 66, 1, {}, 128, /*window=*/4096).works)
    EXPECT_EQ(work.parts, 1);
}

TEST(TiledRows, SameTilesWhereNoWholeTileIsLeftOut) {
  const std::vector<std::int32_t> query_lens = {4, 300, 1, 7};
  const std::vector<std::int32_t> kv_lens = {100, 300, 50, 7};
  const TiledRows all{query_lens, kv_lens, /*least_rows=*/2};
  const auto same = [&](const std::vector<std::int32_t>& first_rows, std::int64_t least_rows = 2) {
    return TiledRows{query_lens, kv_lens, least_rows, first_rows}.same_tiles(all, kTileRows);
  };
  EXPECT_TRUE(same({3, 127, 1, 0})) << "each tile has a wanted row";
  EXPECT_FALSE(same({3, 128, 1, 0})) << "a tile of the second request has none";
  EXPECT_FALSE(same({4, 0, 1, 0})) << "no row of the first request is wanted";
  EXPECT_FALSE(same({3, 0, 0, 0}, 1)) << "the third request has a tile of its own";
}

TEST(TileSchedule, AssignsNothingWithoutRequests) {
  const Assignment a = assign({}, {}, {4}, 5);
  EXPECT_TRUE(a.works.empty());
  EXPECT_THAT(a.starts, ::testing::Each(0));
}

// The largest tile is assigned first, to the worker with the least work, so no worker has more than the mean plus one
// tile.
TEST(WorkerLoads, GivesToTheLeastLoadedWorker) {
  for (const std::int64_t workers : {1, 2, 66, 132}) {
    WorkerLoads loads(workers);
    for (int round = 0; round < 2; ++round) {
      std::vector<std::int64_t> expected(static_cast<std::size_t>(workers));
      for (std::int64_t i = 0; i < 1000; ++i) {
        const std::int64_t cost = (i * 7919) % 4096;
        const auto least = std::ranges::min_element(expected);
        ASSERT_EQ(loads.give(cost), least - expected.begin()) << i;
        *least += cost;
      }
      EXPECT_EQ(loads.most(), std::ranges::max(expected));
      loads.clear();
    }
  }
}

TEST(TileSchedule, BalancesKeysOverWorkers) {
  const std::vector<std::int32_t> query_lens = {4096, 300, 1, 1, 2048};
  const std::vector<std::int32_t> kv_lens = {4096, 5000, 900, 40, 3000};
  const Assignment a = assign(query_lens, kv_lens, {16}, 132);
  std::vector<std::int64_t> loads;
  std::int64_t greatest = 0;
  for (std::size_t w = 0; w + 1 < a.starts.size(); ++w) {
    std::int64_t load = 0;
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (auto i = a.starts[w]; i < a.starts[w + 1]; ++i) {
      const TileWork& work = a.works[static_cast<std::size_t>(i)];
      const auto b = static_cast<std::size_t>(work.request);
      const std::int64_t end = std::min<std::int64_t>(query_lens[b], (work.tile + 1) * kTileRows);
      const std::int64_t cost = kv_lens[b] - query_lens[b] + end + 2 * kTileRows;
      EXPECT_LE(cost, before) << "the greatest go first";
      before = cost;
      load += cost;
      greatest = std::max(greatest, cost);
    }
    loads.push_back(load);
  }
  std::int64_t total = 0;
  for (const std::int64_t load : loads) total += load;
  EXPECT_LE(*std::max_element(loads.begin(), loads.end()), total / 132 + greatest);
}

constexpr std::int64_t kKeyBlock = 128;

Assignment assign_cut(const std::vector<std::int32_t>& query_lens, const std::vector<std::int32_t>& kv_lens,
                      const TileUnits& units, std::int64_t workers) {
  return assign(query_lens, kv_lens, units, workers, 1, {}, kKeyBlock);
}

TEST(CutTiles, CoverEachBlockOfKeysOnce) {
  std::mt19937 generator(3);
  int cut = 0;
  for (int round = 0; round < 200; ++round) {
    const std::size_t requests = 1 + generator() % 4;
    const std::vector<std::int32_t> query_lens = random_lens(requests, 400, static_cast<std::uint32_t>(generator()));
    std::vector<std::int32_t> kv_lens = random_lens(requests, 30'000, static_cast<std::uint32_t>(generator()));
    for (std::size_t b = 0; b < requests; ++b) kv_lens[b] += query_lens[b];
    const std::int64_t heads = 1 + static_cast<std::int64_t>(generator() % 20);
    const std::int64_t workers = 1 + static_cast<std::int64_t>(generator() % 70);
    const Assignment a = assign_cut(query_lens, kv_lens, {heads}, workers);
    EXPECT_EQ(a.starts.front(), 0);
    EXPECT_EQ(a.starts.back(), static_cast<std::int32_t>(a.works.size()));
    EXPECT_TRUE(std::is_sorted(a.starts.begin(), a.starts.end()));
    struct Tile {
      std::int64_t next_block = 0;
      int next_part = 0;
      int parts = 1;
      int first_part = 0;
    };
    std::map<std::tuple<int, int, int>, Tile> tiles;
    std::int64_t parts = 0;
    for (const TileWork& work : a.works) {
      Tile& tile = tiles[{work.request, work.tile, work.unit}];
      EXPECT_EQ(work.first_block, tile.next_block);
      EXPECT_GT(work.end_block, work.first_block);
      EXPECT_EQ(work.part, tile.next_part);
      if (work.part == 0) {
        tile.parts = work.parts;
        tile.first_part = work.first_part;
      }
      EXPECT_EQ(work.parts, tile.parts);
      EXPECT_EQ(work.first_part, tile.first_part);
      if (work.part == 0 && work.parts > 1) {
        EXPECT_EQ(work.first_part, parts) << "no two tiles share memory for parts";
        parts += work.parts;
      }
      tile.next_block = work.end_block;
      ++tile.next_part;
    }
    std::size_t expected = 0;
    for (const std::int32_t rows : query_lens)
      expected += static_cast<std::size_t>((rows + kTileRows - 1) / kTileRows * heads);
    EXPECT_EQ(tiles.size(), expected);
    for (const auto& [key, tile] : tiles) {
      EXPECT_EQ(tile.next_part, tile.parts);
      EXPECT_EQ(tile.next_block, TileWork::kAllBlocks);
    }
    EXPECT_LE(parts, 2 * workers);
    cut += parts > 0;
  }
  EXPECT_GT(cut, 50);
}

// Sixteen query rows over many keys, as in an agent's short turn, are one tile. The tile has 16 units for 66 workers.
TEST(CutTiles, GiveAllWorkersEqualRanges) {
  const std::vector<std::int32_t> kv_lens = {100'000};
  const Assignment a = assign_cut({16}, kv_lens, {16}, 66);
  const std::int64_t blocks = (kv_lens[0] + kKeyBlock - 1) / kKeyBlock;
  for (std::size_t w = 0; w < 66; ++w) {
    std::int64_t load = 0;
    for (auto i = a.starts[w]; i < a.starts[w + 1]; ++i) {
      const TileWork& work = a.works[static_cast<std::size_t>(i)];
      load += std::min<std::int64_t>(work.end_block, blocks) - work.first_block;
    }
    EXPECT_LE(load, 16 * blocks / 66 + 10) << w;
  }
}

TEST(CutTiles, AreNotMadeWhereWorkersEndTogether) {
  for (const auto& [query_lens, kv_lens] :
       {std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>{{8192}, {8192}},
        {{512}, {100'000}},
        {{40}, {900}}})
    for (const TileWork& work : assign_cut(query_lens, kv_lens, {16}, 66).works) EXPECT_EQ(work.parts, 1);
}

}  // namespace
}  // namespace tessera
