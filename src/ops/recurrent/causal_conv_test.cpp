// Catches: a convolution that reads another request's rows, loses the rows before a forward, reads a slot that no
// request owns, or keeps the wrong rows in a slot.
#include "tessera/ops/recurrent/causal_conv.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/ops/recurrent/state_op_test_util.h"
#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;

constexpr std::int64_t kWidth = 80;  // number of columns of x; only the first `channels` of them are convolved

// Returns all rows of a request, with the rows of earlier forwards first.
std::vector<double> sequence(DType dtype, const StateRequest& request, std::int64_t channels) {
  return random_tensor(dtype, {request.before + request.rows, channels}, static_cast<std::uint32_t>(100 + request.slot))
      .values();
}

// Returns the input of channel c in row `row` of a request, or 0 for a row before the first.
double input(const std::vector<double>& rows, std::int64_t row, std::int64_t channels, std::int64_t c) {
  return row < 0 ? 0 : rows[static_cast<std::size_t>(row * channels + c)];
}

ir::Attributes attributes(std::int64_t held_drafts) { return {{"group", std::int64_t{0}}, {"drafts", held_drafts}}; }

void check(DType dtype, const std::vector<StateRequest>& requests, std::int64_t channels, std::int64_t taps,
           BatchKind kind = BatchKind::kExtend, std::int64_t held_drafts = 0) {
  const std::int64_t rows = rows_of(requests) + 3;  // the last three rows are padding
  HostTensor x = poisoned_tensor(dtype, {rows, kWidth});
  const HostTensor w = random_tensor(dtype, {channels, taps}, 1);
  const std::int64_t slot_rows = taps - 1 + held_drafts;
  HostTensor state = poisoned_tensor(dtype, {kNumSlots, slot_rows, channels});
  HostTensor y = poisoned_tensor(dtype, {rows, channels});
  HostTensor after = state;
  std::int64_t row = 0;
  for (const StateRequest& request : requests) {
    const std::vector<double> all = sequence(dtype, request, channels);
    // Writes a slot as it should be after the request's first `count` rows. The slot has the last taps - 1 of these
    // rows, and then the next `drafts` rows as drafts.
    const auto write_slot = [&](HostTensor& to, std::int64_t slot, std::int64_t count, std::int64_t drafts) {
      for (std::int64_t i = 0; i < taps - 1 + drafts; ++i)
        for (std::int64_t c = 0; c < channels; ++c)
          to.set((slot * slot_rows + i) * channels + c, input(all, count - taps + 1 + i, channels, c));
    };
    for (HostTensor* slots : {&state, &after})
      if (request.before > 0) write_slot(*slots, request.slot, request.before - request.accepted, request.accepted);
    write_slot(after, request.slot, request.before + request.rows - request.drafts, request.drafts);
    if (request.checkpoint > 0) write_slot(after, request.checkpoint_slot, request.before + request.checkpoint, 0);
    for (std::int64_t i = 0; i < request.rows; ++i, ++row)
      for (std::int64_t c = 0; c < channels; ++c) {
        x.set(row * kWidth + c, input(all, request.before + i, channels, c));
        double sum = 0;
        for (std::int64_t j = 0; j < taps; ++j)
          sum += w.at(c * taps + j) * input(all, request.before + i - taps + 1 + j, channels, c);
        y.set(row * channels + c, sum / (1 + std::exp(-sum)));
      }
  }
  StateBench bench("causal_conv", false, held_drafts);
  bench.context.batch_kind = kind;
  bench.plan_requests(requests);
  const OpOutcome out = run_op(kCausalConv, kCausalConvCpu, {x, w, state}, attributes(held_drafts), bench.context);
  expect_close(out.results[0], y.values(), tolerance(dtype, 2), "causal_conv");
  EXPECT_EQ(out.operands[2].bytes, after.bytes) << "slots";
}

class CausalConv : public ::testing::TestWithParam<DType> {};

TEST_P(CausalConv, EqualsTheReference) {
  check(GetParam(), {{.rows = 1}}, 64, 4);
  check(GetParam(), {{.rows = 5, .before = 2, .slot = 3}, {.rows = 40, .slot = 1}, {.rows = 1, .before = 1, .slot = 7}},
        48, 4);
  check(GetParam(),
        {{.rows = 2, .slot = 4},
         {.rows = 1, .before = 9, .slot = 11},
         {.rows = 3, .before = 3, .slot = 2},
         {.rows = 2, .before = 70, .slot = 5},
         {.rows = 1, .slot = 8}},
        80, 4);
  check(GetParam(), {{.rows = 9, .before = 1, .slot = 2}, {.rows = 1, .before = 20, .slot = 1}}, 7, 2);
  check(GetParam(), {{.rows = 3, .before = 1, .slot = 2}, {.rows = 300, .before = 20, .slot = 1}}, 33, 8);
  check(GetParam(), {}, 16, 4);
}

TEST_P(CausalConv, StatesLeaveDraftsOut) {
  check(GetParam(),
        {{.rows = 4, .before = 9, .slot = 3, .drafts = 3},
         {.rows = 40, .slot = 1, .drafts = 1},
         {.rows = 9, .before = 2, .slot = 7, .drafts = 8},
         {.rows = 2, .slot = 5, .drafts = 1},
         {.rows = 1, .before = 5, .slot = 2}},
        48, 4, BatchKind::kExtend, 8);
}

TEST_P(CausalConv, StoresCheckpointsAmongItsRows) {
  const std::vector<StateRequest> requests = {
      {.rows = 40, .before = 9, .slot = 3, .checkpoint = 32, .checkpoint_slot = 4},
      {.rows = 3, .before = 2, .slot = 1, .checkpoint = 1, .checkpoint_slot = 2},
      {.rows = 2, .slot = 5, .checkpoint = 1, .checkpoint_slot = 6},
      {.rows = 9, .before = 6, .slot = 7, .accepted = 3, .checkpoint = 1, .checkpoint_slot = 8},
      {.rows = 9, .slot = 9}};
  for (const std::int64_t taps : {4, 2, 8})
    for (const std::int64_t channels : {80, 33}) check(GetParam(), requests, channels, taps, BatchKind::kExtend, 3);
}

TEST_P(CausalConv, ContinuesBehindAcceptedDrafts) {
  const std::vector<StateRequest> requests = {{.rows = 4, .before = 9, .slot = 3, .drafts = 3, .accepted = 2},
                                              {.rows = 1, .before = 6, .slot = 1, .accepted = 5},
                                              {.rows = 2, .before = 2, .slot = 7, .drafts = 1, .accepted = 1},
                                              {.rows = 30, .before = 4, .slot = 5, .accepted = 3},
                                              {.rows = 6, .before = 5, .slot = 2, .drafts = 5}};
  for (const std::int64_t taps : {4, 2, 8})
    for (const std::int64_t channels : {80, 33}) check(GetParam(), requests, channels, taps, BatchKind::kExtend, 5);
  check(GetParam(), {{.before = 9, .slot = 11, .accepted = 3}, {.before = 5, .slot = 4, .accepted = 1}, {.slot = 2}},
        80, 4, BatchKind::kDecode, 3);
  for (const std::int64_t taps : {4, 2, 8})
    for (const std::int64_t channels : {80, 33})
      check(GetParam(),
            {{.rows = 4, .before = 9, .slot = 3, .drafts = 3, .accepted = 2},
             {.rows = 6, .before = 4, .slot = 1, .drafts = 5, .accepted = 1},
             {.before = 6, .slot = 7, .accepted = 5},
             {.rows = 2, .slot = 5, .drafts = 1},
             {.before = 5, .slot = 2}},
            channels, taps, BatchKind::kDecode, 5);
}

// Covers decode steps and their graphs, in which each request has one row.
TEST_P(CausalConv, EqualsTheReferenceForDecodes) {
  for (const std::int64_t taps : {4, 2, 8})
    for (const std::int64_t channels : {80, 33})
      check(GetParam(),
            {{.before = 9, .slot = 11}, {.slot = 4}, {.before = 1, .slot = 2}, {.before = 2, .slot = 5}, {.slot = 8}},
            channels, taps, BatchKind::kDecode);
  check(GetParam(), {}, 16, 4, BatchKind::kDecode);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CausalConv, ::testing::ValuesIn(kFloatingDTypes),
                         [](const auto& dtype) { return std::string(ir::dtype_name(dtype.param)); });

// A batch that only warms kernels up has slot 0 for all requests.
TEST(CausalConvSlots, SlotZeroIsNeitherReadNorWritten) {
  const HostTensor half = random_tensor(DType::kFloat32, {5, kWidth}, 5);
  HostTensor x = half;
  x.dims[0] = 10;
  x.bytes.insert(x.bytes.end(), half.bytes.begin(), half.bytes.end());
  const HostTensor w = random_tensor(DType::kFloat32, {kWidth, 4}, 6);
  const HostTensor state = poisoned_tensor(DType::kFloat32, {kNumSlots, 3, kWidth});
  StateBench bench("causal_conv");
  bench.plan_requests({{.rows = 5, .slot = 0}, {.rows = 5, .before = 9, .slot = 0}});
  const OpOutcome out = run_op(kCausalConv, kCausalConvCpu, {x, w, state}, {{"group", std::int64_t{0}}}, bench.context);
  EXPECT_EQ(out.operands[2].bytes, state.bytes);
  EXPECT_EQ(slice_rows(out.results[0], 0, 5).bytes, slice_rows(out.results[0], 5, 10).bytes) << "both from zeros";
  EXPECT_FALSE(std::isnan(out.results[0].at(0)));
}

// The bits of a request's rows do not depend on how the request is divided into forwards.
TEST(CausalConvCuts, ChangeNoBits) {
  constexpr std::int64_t kRows = 24;
  const HostTensor x = random_tensor(DType::kFloat32, {kRows, kWidth}, 5);
  const HostTensor w = random_tensor(DType::kFloat32, {kWidth, 4}, 6);
  const ir::Attributes group{{"group", std::int64_t{0}}};
  StateBench bench("causal_conv");
  bench.plan_requests({{.rows = kRows, .slot = 2}});
  const HostTensor poisoned = poisoned_tensor(DType::kFloat32, {kNumSlots, 3, kWidth});
  const OpOutcome whole = run_op(kCausalConv, kCausalConvCpu, {x, w, poisoned}, group, bench.context);
  for (const std::vector<std::int32_t>& cuts : {std::vector<std::int32_t>{1, 1, 1, 21}, {2, 22}, {23, 1}, {7, 3, 14}}) {
    HostTensor state = poisoned;
    std::int32_t done = 0;
    for (const std::int32_t rows : cuts) {
      bench.plan_requests({{.rows = rows, .before = done, .slot = 2}});
      const OpOutcome part =
          run_op(kCausalConv, kCausalConvCpu, {slice_rows(x, done, done + rows), w, state}, group, bench.context);
      EXPECT_EQ(part.results[0].bytes, slice_rows(whole.results[0], done, done + rows).bytes) << done;
      state = part.operands[2];
      done += rows;
    }
    EXPECT_EQ(state.bytes, whole.operands[2].bytes);
  }
}

// A graph that was recorded for 12 rows works for every batch of at most 12 rows.
TEST(CausalConvGraph, ReplaysWithOtherRequests) {
  const HostTensor x = random_tensor(DType::kFloat32, {12, kWidth}, 5);
  const HostTensor w = random_tensor(DType::kFloat32, {kWidth, 4}, 6);
  const HostTensor state = random_tensor(DType::kFloat32, {kNumSlots, 3, kWidth}, 7);
  const ir::Attributes group{{"group", std::int64_t{0}}};
  StateBench bench("causal_conv");
  const auto kernel = kernel_under_test(kCausalConvCpu);
  ASSERT_TRUE(kernel.ok());
  const auto recorded = OpCase::create(test_device(), kCausalConv, **kernel, {x, w, state}, group, bench.context);
  ASSERT_TRUE(recorded.ok()) << recorded.status().message();
  bench.plan_requests({{.rows = 12}});
  ASSERT_TRUE((*recorded)->record().ok());
  for (const std::vector<StateRequest>& requests : {std::vector<StateRequest>{{.rows = 1, .before = 4, .slot = 3}},
                                                    {{.rows = 4, .slot = 2}, {.rows = 8, .before = 1, .slot = 9}},
                                                    {}}) {
    bench.plan_requests(requests);
    ASSERT_TRUE((*recorded)->load({x, w, state}).ok());
    ASSERT_TRUE((*recorded)->replay().ok());
    const OpOutcome alone = run_op(kCausalConv, kCausalConvCpu, {x, w, state}, group, bench.context);
    EXPECT_EQ((*recorded)->results()->front().bytes, alone.results[0].bytes);
    EXPECT_EQ((*recorded)->operands()->back().bytes, alone.operands[2].bytes);
  }
}

TEST(CausalConvShapes, AreChecked) {
  const ir::Attributes group{{"group", std::int64_t{0}}};
  const ir::Type x{DType::kFloat32, {ir::Symbol::kTokens, 8}};
  const ir::Type w{DType::kFloat32, {6, 4}};
  const ir::Type state{DType::kFloat32, {ir::Symbol::kPages, 3, 6}};
  EXPECT_EQ(infer_error(kCausalConv, {x, w, state}, group), "");
  EXPECT_NE(infer_error(kCausalConv, {x, {DType::kFloat32, {9, 4}}, state}, group), "");
  EXPECT_NE(infer_error(kCausalConv, {x, {DType::kFloat32, {6, 1}}, state}, group), "");
  EXPECT_NE(infer_error(kCausalConv, {x, {DType::kFloat32, {6, 9}}, state}, group), "");
  EXPECT_NE(infer_error(kCausalConv, {x, {DType::kBFloat16, {6, 4}}, state}, group), "");
  EXPECT_NE(infer_error(kCausalConv, {x, w, {DType::kFloat32, {ir::Symbol::kPages, 4, 6}}}, group), "");
  EXPECT_NE(infer_error(kCausalConv, {x, w, {DType::kBFloat16, {ir::Symbol::kPages, 3, 6}}}, group), "");
  EXPECT_NE(infer_error(kCausalConv, {x, w, state}, {{"group", std::int64_t{-1}}}), "");
  EXPECT_NE(infer_error(kCausalConv, {x, w, state}, attributes(-1)), "");
  EXPECT_NE(infer_error(kCausalConv, {x, w, state}, attributes(2)), "");
  EXPECT_EQ(infer_error(kCausalConv, {x, w, {DType::kFloat32, {ir::Symbol::kPages, 5, 6}}}, attributes(2)), "");
}

}  // namespace
}  // namespace tessera::testing
