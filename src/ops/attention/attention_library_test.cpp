// Tests attention as engines run it, with the device's planner, on each kernel that the device has. Catches: work lists
// that leave out or repeat work; recorded launches that depend on lengths; chunks that are merged wrongly; padding that
// changes real rows; writes to rows after the last real one; layers that read the plan of another cache group.
#include <gmock/gmock.h>

#include "tessera/ops/attention/attention_library_test_util.h"
#include "tessera/ops/contract/forward_states.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

class AttentionLibrary : public ::testing::TestWithParam<DType> {};

TEST_P(AttentionLibrary, ExtendMatchesTheReferenceForEveryHeadSize) {
  for (const std::int64_t head_dim : {64, 128, 256, 512})
    check_extend(library_config(GetParam(), head_dim, 2, 2), kRagged);
}

// The kernel "fa3" computes two query heads of a KV head at once. If a KV head has an odd number of query heads, "fa3"
// computes two tiles of the last query head at once.
TEST_P(AttentionLibrary, ExtendMatchesTheReferenceForEveryGroupSize) {
  for (const std::int64_t group : {1, 4, 5, 8}) {
    check_extend(library_config(GetParam(), 128, 2, group), kMixed);
    check_extend(library_config(GetParam(), 128, 2, group), {{700, 1500}, {129, 129}, {128, 4000}});
  }
}

// There are 68 heads, so even a short prompt has enough tiles of 128 rows to fill the device. Therefore "fa3" does not
// use its short tiles of 64 rows.
TEST_P(AttentionLibrary, ExtendMatchesTheReferenceWithManyHeads) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU has one kind of tiles";
  check_extend(library_config(GetParam(), 128, 2, 34), {{200, 200}, {5, 5}, {70, 90}, {129, 300}, {1, 40}});
}

// If few query rows see many keys, "fa3" cuts the keys of a tile into parts. It cuts at multiples of 128 keys, or of 80
// keys for heads of 256 elements. A graph that was recorded while no tile was cut must merge the parts when it is
// replayed with cut tiles. The result must have the same bits each time, although the order in which the parts end
// varies.
TEST_P(AttentionLibrary, ExtendMatchesTheReferenceWithCutTiles) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU does not cut tiles";
  Config with_sinks = library_config(GetParam(), 64, 2, 8);
  with_sinks.sinks = true;
  const std::vector<std::pair<Config, std::vector<Request>>> cases = {
      {library_config(GetParam(), 128, 2, 4), {{16, 4000}}},
      {library_config(GetParam(), 128, 2, 4), {{33, 6001}, {1, 300}, {70, 3017}, {5, 5}}},
      {library_config(GetParam(), 128, 2, 34), {{70, 3300}}},
      {library_config(GetParam(), 256, 2, 4), {{16, 4000}}},
      {with_sinks, {{16, 4000}, {40, 5000}}},
      {library_config(GetParam(), 256, 2, 4), {{33, 6001}, {1, 300}, {130, 3017}, {5, 5}}},
      {library_config(GetParam(), 128, 2, 5), {{16, 4000}, {300, 3500}}},
      {library_config(GetParam(), 256, 2, 1), {{200, 3000}}}};
  for (const auto& [c, requests] : cases) {
    check_extend(c, requests);
    const std::int64_t rows = count_rows(requests);
    const ForwardBatch batch = make_batch(requests, c.page_size, 5);
    const std::vector<HostTensor> operands = make_operands(c, batch, rows, 6);
    Recorded recorded = Recorded::create(c, BatchKind::kExtend, "fa3", batch, rows);
    const HostTensor first = recorded.replay(batch, operands, rows);
    for (int i = 0; i < 20; ++i) {
      const HostTensor again = recorded.replay(batch, operands, rows);
      for (std::int64_t e = 0; e < first.size(); ++e) ASSERT_EQ(first.at(e), again.at(e)) << describe(c, "fa3");
    }
  }
}

// There are more tiles than blocks that run at once, so a block processes several tiles. A tile has only a few rows.
TEST_P(AttentionLibrary, ExtendMatchesTheReferenceWithManyRequests) {
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < 40; ++i) {
    const std::int32_t rows = 2 + i % 7;
    requests.push_back({rows, rows + (i % 3 == 0 ? 20 * i % 290 : 0)});
  }
  check_extend(library_config(GetParam(), 128, 2, 4), requests);
}

TEST_P(AttentionLibrary, ExtendMatchesTheReferenceWithWindowsAndSoftcap) {
  for (const std::int64_t window : {1, 64, 100, 2000})
    for (const double softcap : {0.0, 3.0}) {
      Config c = library_config(GetParam(), window == 100 ? 128 : 64, 2, 4);
      c.window = window;
      c.softcap = softcap;
      check_extend(c, kRagged);
    }
  for (const std::int64_t head_dim : {256, 512}) {
    Config c = library_config(GetParam(), head_dim, 1, 4);
    c.softcap = 3.0;
    check_extend(c, kRagged);
    c.window = 100;
    check_extend(c, kRagged);
  }
}

// For each tile of query rows, "fa3" processes the tiles of keys in three loops. The first loop processes tiles with
// keys after some row's position, the second processes tiles that every row sees, and the third processes tiles with
// keys before some row's window. With a window of 300 keys, all three loops have work.
TEST_P(AttentionLibrary, ExtendMatchesTheReferenceWithWindowsInEveryTile) {
  for (const std::int64_t head_dim : {64, 128, 256})
    for (const std::int64_t window : {1, 100, 300, 2000}) {
      Config c = library_config(GetParam(), head_dim, 2, window == 100 ? 3 : 4);
      c.window = window;
      c.sinks = window != 300;
      check_extend(c, kRagged);
      check_extend(c, {{300, 900}, {1, 40}, {129, 129}, {17, 1500}});
      check_extend(c, {{20, 300}, {3, 3}});  // few tokens: "fa3" uses tiles of 64 rows
      if (test_device().properties().compute_capability == 90) {
        EXPECT_EQ(Bench::create(c.page_size, {{c}}, BatchKind::kExtend, "fa3").kernel(c), "fa3");
      }
    }
}

TEST_P(AttentionLibrary, ExtendMatchesTheReferenceWithSinks) {
  for (const std::int64_t window : {0, 100}) {
    Config c = library_config(GetParam(), 64, 2, 8);
    c.window = window;
    c.sinks = true;
    check_extend(c, kRagged);
    for (const std::int64_t head_dim : {128, 512}) {
      c.head_dim = head_dim;
      c.softcap = 3.0;
      check_extend(c, kRagged);
    }
  }
}

TEST_P(AttentionLibrary, ExtendMatchesTheReferenceForEveryPageSize) {
  for (const std::int64_t page_size : {1, 64}) {
    Config c = library_config(GetParam(), 128, 2, 2);
    c.page_size = page_size;
    check_extend(c, {{5, 5}, {70, 90}, {1, 64}, {33, 200}});
  }
}

// A full graph contains a whole forward. The full graph of a prefill runs only for requests of several rows. An
// operator of "fa3" or "fa2" usually launches a separate kernel for single-row requests, and must leave it out of this
// graph. Operators of other kernels never have this launch.
TEST_P(AttentionLibrary, FullGraphLaunchesNothingForSingleRows) {
  const Config c = library_config(GetParam(), 128, 2, 4);
  const std::vector<Request> requests = {{5, 5}, {70, 90}, {2, 300}};
  constexpr std::int64_t kRows = 96;
  const ForwardBatch first = make_batch({{3, 3}}, c.page_size, 1);
  const ForwardBatch batch = make_batch(requests, c.page_size, 5);
  const std::vector<HostTensor> operands = make_operands(c, batch, kRows, 6);
  for (const std::string& kernel : kernels(BatchKind::kExtend)) {
    Bench bench = Bench::create(c.page_size, {{c}}, BatchKind::kExtend, kernel);
    if (bench.kernel(c) != kernel) continue;
    ForwardStates states;
    bench.context.states = &states;
    bench.plan(first, kRows);
    Result<const KernelDef*> def = kernel_under_test(kAttentionCpu);
    ASSERT_TRUE(def.ok()) << def.status().message();
    Result<std::unique_ptr<OpCase>> op = OpCase::create(
        test_device(), kAttention, **def, make_operands(c, first, kRows, 2), c.attributes(), bench.context);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE((*op)->record().ok());
    const std::int64_t for_any = (*op)->recorded_nodes();
    {
      const ForwardStates::Scope full(&states, ForwardState::kFull);
      ASSERT_TRUE((*op)->record().ok());
    }
    const bool separates = kernel == "fa3" || kernel == "fa2";
    EXPECT_EQ((*op)->recorded_nodes() < for_any, separates) << describe(c, kernel);
    bench.plan(batch, kRows);
    ASSERT_TRUE((*op)->load(operands).ok());
    ASSERT_TRUE((*op)->replay().ok());
    Result<std::vector<HostTensor>> after = (*op)->operands();
    ASSERT_TRUE(after.ok()) << after.status().message();
    expect_rows_close((*after)[3], reference(c, batch, operands), count_rows(requests), c.head_dim,
                      "full graph, " + describe(c, kernel));
  }
}

// Runs one bound operator for several batches, one after another, without recording. Catches launches that are left out
// although the step has work for them.
TEST_P(AttentionLibrary, ConsecutiveExtendStepsMatchTheReference) {
  const Config c = library_config(GetParam(), 128, 2, 4);
  const std::vector<std::vector<Request>> steps = {
      {{5, 5}, {70, 90}},                        // no single-row request
      {{1, 1500}, {1, 7}, {1, 300}},             // single-row requests only
      {{1, 900}, {40, 40}, {1, 33}, {9, 1000}},  // single-row requests and longer ones
      {{130, 130}},
      {{1, 1}},
  };
  constexpr std::int64_t kRows = 140;
  for (const std::string& kernel : kernels(BatchKind::kExtend)) {
    Bench bench = Bench::create(c.page_size, {{c}}, BatchKind::kExtend, kernel);
    if (bench.kernel(c) != kernel) continue;
    bench.plan(make_batch(steps[0], c.page_size, 1), kRows);
    Result<const KernelDef*> def = kernel_under_test(kAttentionCpu);
    ASSERT_TRUE(def.ok()) << def.status().message();
    Result<std::unique_ptr<OpCase>> op =
        OpCase::create(test_device(), kAttention, **def,
                       make_operands(c, make_batch(steps[0], c.page_size, 1), kRows, 2), c.attributes(), bench.context);
    ASSERT_TRUE(op.ok()) << op.status().message();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto seed = static_cast<std::uint32_t>(30 + i);
      const ForwardBatch batch = make_batch(steps[i], c.page_size, seed);
      const std::vector<HostTensor> operands = make_operands(c, batch, kRows, seed);
      bench.plan(batch, kRows);
      ASSERT_TRUE((*op)->load(operands).ok());
      ASSERT_TRUE((*op)->enqueue().ok());
      Result<std::vector<HostTensor>> after = (*op)->operands();
      ASSERT_TRUE(after.ok()) << after.status().message();
      expect_rows_close((*after)[3], reference(c, batch, operands), count_rows(steps[i]), c.head_dim,
                        "step " + std::to_string(i) + " of " + describe(c, kernel));
    }
  }
}

TEST_P(AttentionLibrary, ExtendMatchesTheReferenceWithZeroOrOneRow) {
  check_extend(library_config(GetParam(), 128, 2, 2), {});
  check_extend(library_config(GetParam(), 128, 2, 2), {{1, 1}});
}

TEST_P(AttentionLibrary, DecodeMatchesTheReferenceForHeadAndGroupSizes) {
  for (const std::int64_t head_dim : {64, 128, 256, 512})
    for (const std::int64_t group : {1, 2, 4, 8, 5, 12})
      check_decode(library_config(GetParam(), head_dim, 2, group), 4, {{2000}, {17, 129, 1000}});
}

TEST_P(AttentionLibrary, DecodeMatchesTheReferenceForEveryPageSize) {
  for (const std::int64_t page_size : {8, 32, 64}) {
    Config c = library_config(GetParam(), 128, 2, 2);
    c.page_size = page_size;
    check_decode(c, 4, {{300, 7, 1}, {2000}});
  }
}

// With 64 KV heads these requests fill the device, so FA2 and our own kernel cut no request's keys and merge nothing.
// With 2 KV heads both kernels cut keys.
TEST_P(AttentionLibrary, DecodeMatchesTheReferenceWithManyRequests) {
  std::vector<std::int32_t> kv_lens(40);
  for (std::size_t b = 0; b < kv_lens.size(); ++b) kv_lens[b] = static_cast<std::int32_t>(1 + b * 5);
  check_decode(library_config(GetParam(), 64, 64, 1), 40, {kv_lens, {130, 4}});
  check_decode(library_config(GetParam(), 64, 2, 4), 40, {kv_lens, {130, 4}});
}

TEST_P(AttentionLibrary, DecodeMatchesTheReferenceWithWindowsAndSoftcap) {
  for (const std::int64_t window : {1, 100, 600})
    for (const double softcap : {0.0, 3.0}) {
      Config c = library_config(GetParam(), 128, 2, 4);
      c.window = window;
      c.softcap = softcap;
      for (const std::int64_t head_dim : {128, 256, 512}) {
        c.head_dim = head_dim;
        check_decode(c, 4, {{300, 7, 1}, {2000}});
      }
    }
}

// The last case has enough rows and KV heads to fill the device, so FA2 and our own kernel do not cut keys. In all
// other cases both kernels cut keys.
TEST_P(AttentionLibrary, DecodeMatchesTheReferenceWithSinks) {
  for (const std::int64_t window : {0, 100}) {
    Config c = library_config(GetParam(), 64, 2, 8);
    c.window = window;
    c.sinks = true;
    check_decode(c, 4, {{300, 7, 1}, {2000}});
    check_decode(c, 12, {{300, 7, 1}, {2000}});
    for (const std::int64_t head_dim : {128, 512}) {
      c.head_dim = head_dim;
      c.softcap = 3.0;
      check_decode(c, 4, {{300, 7, 1}, {2000}});
    }
  }
  Config c = library_config(GetParam(), 64, 64, 1);
  c.sinks = true;
  check_decode(c, 40, {{130, 4}});
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionLibrary, ::testing::Values(DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

// Covers two shapes in one cache group, and two cache groups with different page tables and windows.
TEST(AttentionGroups, ReadTheirOwnPlans) {
  Config narrow = library_config(DType::kBFloat16, 64, 2, 2);
  Config wide = library_config(DType::kBFloat16, 128, 2, 4);
  Config windowed = wide;
  windowed.group = 1;
  windowed.window = 50;
  Bench bench = Bench::create(16, {{narrow, wide}, {windowed}});
  const ForwardBatch batch = make_batch(kMixed, 16, 3, /*groups=*/2);
  bench.plan(batch);
  for (const Config& c : {narrow, wide, windowed}) {
    const std::vector<HostTensor> operands = make_operands(c, batch, count_rows(kMixed) + 3, 4);
    const OpOutcome outcome = run_op(kAttention, kAttentionCpu, operands, c.attributes(), bench.context);
    expect_rows_close(outcome.operands[3], reference(c, batch, operands), count_rows(kMixed), c.head_dim,
                      "group " + std::to_string(c.group) + " " + describe(c, bench.kernel(c)));
  }
}

// The planner has work lists only for the shapes and cache types of its nodes. Any other shape or cache type must run
// without lists.
TEST(AttentionGroups, UnplannedShapesRunWithoutLists) {
  Config c = library_config(DType::kBFloat16, 64, 2, 2);
  Bench bench = Bench::create(16, {{library_config(DType::kBFloat16, 128, 2, 2)}});
  const ForwardBatch batch = make_batch(kMixed, 16, 3);
  bench.plan(batch);
  for (const DType cache : {DType::kBFloat16, DType::kFloat32}) {
    c.cache_dtype = cache;
    const std::vector<HostTensor> operands = make_operands(c, batch, count_rows(kMixed) + 3, 4);
    const OpOutcome outcome = run_op(kAttention, kAttentionCpu, operands, c.attributes(), bench.context);
    expect_rows_close(outcome.operands[3], reference(c, batch, operands), count_rows(kMixed), c.head_dim, "unplanned");
  }
}

TEST(AttentionPlanner, RefusesBatchesBeyondItsLimits) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU has no planner";
  const Config c = library_config(DType::kBFloat16, 128, 2, 2);
  Bench bench = Bench::create(16, {{c}});
  const auto error = [&](const std::vector<Request>& requests, BatchKind kind, std::int64_t padded) {
    return bench.plans[0]->plan(make_batch(requests, 16, 1), kind, padded, *bench.stream).to_string();
  };
  EXPECT_THAT(error({{1025, 1025}}, BatchKind::kExtend, 0), HasSubstr("made for 40 and 1024"));
  EXPECT_THAT(error({{1, 1}}, BatchKind::kDecode, 41), HasSubstr("41 requests"));
  EXPECT_THAT(error({{2, 2}}, BatchKind::kDecode, 4), HasSubstr("a decode batch of 1 requests has 2 tokens"));
  EXPECT_EQ(error({{2, 2}}, BatchKind::kExtend, 0), "ok");

  StepBuffer step;
  const auto unknown = PlannedLayers({c}).make(
      {.max_requests = 1, .max_tokens = 1, .max_pages_per_request = 1, .attention_kernel = "fa9"},
      /*num_pages=*/1, step);
  EXPECT_THAT(unknown.status().message(),
              HasSubstr("no kernel \"fa9\"; there are hopper, fa3, fa2, cudnn and tessera"));
}

}  // namespace
}  // namespace tessera::testing
