// Tests how plan_segments() divides the keys of single query rows among workers. Catches: keys that no worker
// processes, or that two workers process; keys outside a window; a worker with far more work than another; partial
// results of a request that share a slot or lie past the last slot; work that is planned for requests of which several
// rows are computed.
#include "tessera/ops/attention/decode_schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace tessera {
namespace {

struct Planned {
  std::vector<std::int32_t> starts;
  std::vector<KeySegment> segments;
};

Planned plan(const std::vector<std::int32_t>& query_lens, const std::vector<std::int32_t>& kv_lens,
             const SegmentLimits& limits, const std::vector<std::int32_t>& first_rows = {}) {
  Planned p;
  p.starts.resize(static_cast<std::size_t>(limits.workers) + 1, -1);
  p.segments.resize(static_cast<std::size_t>(most_segments(static_cast<std::int64_t>(kv_lens.size()), limits.workers)));
  const std::int64_t count =
      plan_segments({query_lens, kv_lens, first_rows}, limits, {p.starts.data(), p.segments.data()});
  EXPECT_LE(count, static_cast<std::int64_t>(p.segments.size()));
  p.segments.resize(static_cast<std::size_t>(count));
  EXPECT_EQ(p.starts.front(), 0);
  EXPECT_EQ(p.starts.back(), count);
  EXPECT_TRUE(std::is_sorted(p.starts.begin(), p.starts.end()));
  return p;
}

void expect_every_key_once(const std::vector<std::int32_t>& query_lens, const std::vector<std::int32_t>& kv_lens,
                           const SegmentLimits& limits) {
  const Planned p = plan(query_lens, kv_lens, limits);
  std::set<std::int32_t> slots;
  auto next = p.segments.begin();
  std::int32_t row = 0;
  for (std::size_t b = 0; b < kv_lens.size(); row += query_lens[b++]) {
    if (query_lens[b] != 1) continue;
    const std::int64_t window = limits.window > 0 ? limits.window : kv_lens[b];
    std::int32_t key = std::max(0, kv_lens[b] - static_cast<std::int32_t>(window));
    for (std::int32_t part = 0; key < kv_lens[b]; ++part, ++next) {
      ASSERT_NE(next, p.segments.end());
      EXPECT_EQ(next->request, static_cast<std::int32_t>(b));
      EXPECT_EQ(next->row, row);
      EXPECT_EQ(next->newest, kv_lens[b] - 1);
      EXPECT_EQ(next->part, part);
      EXPECT_EQ(next->begin, key);
      ASSERT_GT(next->end, key);
      key = next->end;
      EXPECT_TRUE(key == kv_lens[b] || key % limits.tile_keys == 0);
      if (next->parts == 1) continue;
      EXPECT_TRUE(slots.insert(next->slot + part).second) << "a slot has two parts";
      EXPECT_LT(next->slot + part, most_parts(limits.workers));
    }
    EXPECT_EQ(key, kv_lens[b]);
    EXPECT_EQ((next - 1)->part + 1, (next - 1)->parts);
  }
  EXPECT_EQ(next, p.segments.end());
}

TEST(PlanSegments, AssignsEveryKeyOnce) {
  std::mt19937 generator(4);
  for (int i = 0; i < 300; ++i) {
    const auto requests = static_cast<std::size_t>(1 + generator() % 70);
    std::vector<std::int32_t> kv_lens(requests);
    std::vector<std::int32_t> query_lens(requests);
    for (std::size_t b = 0; b < requests; ++b) {
      kv_lens[b] = static_cast<std::int32_t>(1 + generator() % (i % 2 == 0 ? 5000 : 100));
      query_lens[b] = i % 3 == 0 && generator() % 2 == 0 ? 2 : 1;
    }
    expect_every_key_once(query_lens, kv_lens,
                          {.workers = 1 + static_cast<std::int64_t>(generator() % 40),
                           .tile_keys = i % 5 == 0 ? 64 : 128,
                           .window = i % 4 == 0 ? 1 + static_cast<std::int64_t>(generator() % 600) : 0});
  }
}

TEST(PlanSegments, PlansNothingWithoutSingleRows) {
  const SegmentLimits limits{.workers = 5, .tile_keys = 128};
  EXPECT_TRUE(plan({}, {}, limits).segments.empty());
  EXPECT_TRUE(plan({3, 2}, {700, 2}, limits).segments.empty());
}

// The first request wants only the last of its rows, the second its last two rows, and the third no row. The fourth
// request wants its single row, and the fifth does not want its single row.
TEST(PlanSegments, PlansTheLastRowIfOnlyItIsWanted) {
  const SegmentLimits limits{.workers = 4, .tile_keys = 128, .window = 200};
  const Planned p = plan({5, 3, 2, 1, 1}, {600, 3, 700, 40, 50}, limits, {4, 1, 2, 0, 1});
  ASSERT_EQ(p.segments.size(), 3U);
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(p.segments[i].request, 0);
    EXPECT_EQ(p.segments[i].row, 4);
    EXPECT_EQ(p.segments[i].newest, 595) << "five keys are new";
    EXPECT_EQ(p.segments[i].parts, 2);
  }
  EXPECT_EQ(p.segments[0].begin, 400);
  EXPECT_EQ(p.segments[1].end, 600);
  EXPECT_EQ(p.segments[2].request, 3);
  EXPECT_EQ(p.segments[2].row, 10);
  EXPECT_EQ(p.segments[2].newest, 39);
}

// The cases are one long request among short ones, many equal requests, and a single request. No worker may have more
// than the mean number of tiles, rounded up.
TEST(PlanSegments, SharesKeysEquallyAmongWorkers) {
  constexpr SegmentLimits kLimits{.workers = 16, .tile_keys = 128};
  for (const auto& kv_lens : {std::vector<std::int32_t>{100'000, 300, 1, 900}, std::vector<std::int32_t>(200, 1000),
                              std::vector<std::int32_t>{1024}, std::vector<std::int32_t>{1}}) {
    const Planned p = plan(std::vector<std::int32_t>(kv_lens.size(), 1), kv_lens, kLimits);
    std::int64_t total = 0;
    for (const std::int32_t kv_len : kv_lens) total += (kv_len + kLimits.tile_keys - 1) / kLimits.tile_keys;
    const std::int64_t share = (total + kLimits.workers - 1) / kLimits.workers;
    for (std::size_t w = 0; w + 1 < p.starts.size(); ++w) {
      std::int64_t tiles = 0;
      for (std::int32_t i = p.starts[w]; i < p.starts[w + 1]; ++i) {
        const KeySegment& s = p.segments[static_cast<std::size_t>(i)];
        tiles += (s.end - s.begin + kLimits.tile_keys - 1) / kLimits.tile_keys;
      }
      EXPECT_LE(tiles, share);
    }
  }
}

// With as many equal requests as workers, each worker takes exactly one request.
TEST(PlanSegments, CutsNoRequestIfEachWorkerHasOne) {
  const Planned p = plan(std::vector<std::int32_t>(16, 1), std::vector<std::int32_t>(16, 1024), {16, 128, 0});
  EXPECT_EQ(p.segments.size(), 16U);
  for (const KeySegment& s : p.segments) EXPECT_EQ(s.parts, 1);
}

}  // namespace
}  // namespace tessera
