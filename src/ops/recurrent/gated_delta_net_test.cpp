// Catches: a state that is lost, mixed up with another, or read although it does not exist; a chunked form whose
// results differ from the recurrent form; and deterministic results that depend on where a request was cut.
#include "tessera/ops/recurrent/gated_delta_net.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/ops/recurrent/state_op_test_util.h"
#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;

struct DeltaSizes {
  std::int64_t key_heads;
  std::int64_t heads;
  std::int64_t key_dim;
  std::int64_t value_dim;

  std::int64_t width() const { return 2 * key_heads * key_dim + heads * value_dim; }
  std::int64_t state() const { return heads * key_dim * value_dim; }
  std::int64_t keys() const { return key_heads * key_dim; }
  // Return the number of elements of a draft's keys and row of ba, of a draft's values, and of a slot of `held` drafts.
  std::int64_t key_width() const { return key_heads * key_dim + 2 * heads; }
  std::int64_t value_width() const { return heads * value_dim; }
  std::int64_t slot_width(std::int64_t held) const { return held * value_width() + (2 * held + 1) * key_width(); }
  ir::Attributes attributes(std::int64_t held_drafts = 0) const {
    return {{"group", std::int64_t{0}}, {"key_heads", key_heads}, {"drafts", held_drafts}};
  }
};

// Computes one row of all heads: updates `state` [heads, key_dim, value_dim] and writes out [heads, value_dim].
void reference_row(const DeltaSizes& s, const double* qkv, const double* ba, const std::vector<double>& a_log,
                   const std::vector<double>& dt_bias, double* state, double* out) {
  const auto unit = [&](const double* x, double scale) {
    double squares = 0;
    for (std::int64_t i = 0; i < s.key_dim; ++i) squares += x[i] * x[i];
    std::vector<double> y(x, x + s.key_dim);
    for (double& v : y) v *= scale / std::sqrt(squares + 1e-6);
    return y;
  };
  for (std::int64_t h = 0; h < s.heads; ++h) {
    const std::int64_t key_head = h / (s.heads / s.key_heads);
    const std::vector<double> q = unit(qkv + key_head * s.key_dim, 1 / std::sqrt(static_cast<double>(s.key_dim)));
    const std::vector<double> k = unit(qkv + (s.key_heads + key_head) * s.key_dim, 1);
    const double* v = qkv + 2 * s.key_heads * s.key_dim + h * s.value_dim;
    const auto head = static_cast<std::size_t>(h);
    const double decay = std::exp(-std::exp(a_log[head]) * std::log1p(std::exp(ba[s.heads + h] + dt_bias[head])));
    const double beta = 1 / (1 + std::exp(-ba[h]));
    double* const matrix = state + h * s.key_dim * s.value_dim;
    for (std::int64_t j = 0; j < s.value_dim; ++j) {
      double found = 0;
      for (std::int64_t i = 0; i < s.key_dim; ++i)
        found += k[static_cast<std::size_t>(i)] * (matrix[i * s.value_dim + j] *= decay);
      double y = 0;
      for (std::int64_t i = 0; i < s.key_dim; ++i) {
        double& at = matrix[i * s.value_dim + j];
        at += k[static_cast<std::size_t>(i)] * beta * (v[j] - found);
        y += q[static_cast<std::size_t>(i)] * at;
      }
      out[h * s.value_dim + j] = y;
    }
  }
}

struct Inputs {
  HostTensor qkv, ba, a_log, dt_bias, state;
  std::vector<HostTensor> operands() const { return {qkv, ba, a_log, dt_bias, state}; }
};

// Makes random operands. The slots of requests that start, slots without a request and padding rows are NaN. Gates
// range from 1 to almost 0.
Inputs make_inputs(DType dtype, const DeltaSizes& s, const std::vector<StateRequest>& requests, std::int64_t padding,
                   std::uint32_t seed) {
  const std::int64_t rows = rows_of(requests);
  Inputs in{.qkv = random_tensor(dtype, {rows + padding, s.width()}, seed),
            .ba = random_tensor(dtype, {rows + padding, 2 * s.heads}, seed + 1, -4, 4),
            .a_log = random_tensor(DType::kFloat32, {s.heads}, seed + 2, -3, 1),
            .dt_bias = random_tensor(DType::kFloat32, {s.heads}, seed + 3),
            .state = poisoned_tensor(DType::kFloat32, {kNumSlots, s.heads, s.key_dim, s.value_dim})};
  for (std::int64_t i = rows * s.width(); i < in.qkv.size(); ++i) in.qkv.set(i, std::nan(""));
  for (std::int64_t i = rows * 2 * s.heads; i < in.ba.size(); ++i) in.ba.set(i, std::nan(""));
  const HostTensor random = random_tensor(DType::kFloat32, in.state.dims, seed + 4);
  for (const StateRequest& request : requests)
    for (std::int64_t i = 0; request.before > 0 && i < s.state(); ++i)
      in.state.set(request.slot * s.state() + i, random.at(request.slot * s.state() + i));
  return in;
}

// keys_at() returns the index in draft_rows of a draft's keys and ba, and values_at() the index of the draft's values.
std::int64_t keys_at(const DeltaSizes& s, std::int64_t held, std::int64_t slot, std::int64_t position) {
  return slot * s.slot_width(held) + held * s.value_width() + position % (2 * held + 1) * s.key_width();
}
std::int64_t values_at(const DeltaSizes& s, std::int64_t held, std::int64_t slot, std::int64_t number) {
  return slot * s.slot_width(held) + number * s.value_width();
}

// Reads the request's accepted drafts from its slot in `draft_rows`, and advances `state` over them.
void accept_drafts(const DeltaSizes& s, const StateRequest& request, std::int64_t held, const Inputs& in,
                   const std::vector<double>& draft_rows, double* state) {
  std::vector<double> qkv(static_cast<std::size_t>(s.width()));  // the queries are zeros
  std::vector<double> out(static_cast<std::size_t>(s.heads * s.value_dim));
  for (std::int64_t i = 0; i < request.accepted; ++i) {
    const double* const row = draft_rows.data() + keys_at(s, held, request.slot, request.before - request.accepted + i);
    std::copy_n(row, s.keys(), qkv.begin() + s.keys());
    std::copy_n(draft_rows.data() + values_at(s, held, request.slot, i), s.value_width(), qkv.begin() + 2 * s.keys());
    reference_row(s, qkv.data(), row + s.keys(), in.a_log.values(), in.dt_bias.values(), state, out.data());
  }
}

void check(DType dtype, const DeltaSizes& s, const std::vector<StateRequest>& requests, bool deterministic = false,
           BatchKind kind = BatchKind::kExtend, std::int64_t held = 0) {
  const Inputs in = make_inputs(dtype, s, requests, 2, 11);
  const HostTensor draft_rows = random_tensor(dtype, {kNumSlots, s.slot_width(std::max<std::int64_t>(held, 1))}, 23);
  std::vector<double> drafts = draft_rows.values();
  const std::vector<double> qkv = in.qkv.values();
  const std::vector<double> ba = in.ba.values();
  std::vector<double> state = in.state.values();
  std::vector<double> out(static_cast<std::size_t>(in.qkv.dims[0] * s.heads * s.value_dim), std::nan(""));
  std::int64_t row = 0;
  for (const StateRequest& request : requests) {
    double* const slot = state.data() + request.slot * s.state();
    if (request.before == 0) std::fill_n(slot, s.state(), 0.0);
    accept_drafts(s, request, held, in, draft_rows.values(), slot);
    std::vector<double> with_drafts(slot, slot + s.state());
    for (std::int64_t i = 0; i < request.rows; ++i, ++row) {
      reference_row(s, qkv.data() + row * s.width(), ba.data() + row * 2 * s.heads, in.a_log.values(),
                    in.dt_bias.values(), with_drafts.data(), out.data() + row * s.heads * s.value_dim);
      if (i + 1 == request.checkpoint)
        std::copy(with_drafts.begin(), with_drafts.end(), state.begin() + request.checkpoint_slot * s.state());
      const std::int64_t draft = i - (request.rows - request.drafts);
      if (draft == -1) std::copy(with_drafts.begin(), with_drafts.end(), slot);
      if (draft < 0) continue;
      double* const kept = drafts.data() + keys_at(s, held, request.slot, request.before + i);
      std::copy_n(qkv.data() + row * s.width() + s.keys(), s.keys(), kept);
      std::copy_n(ba.data() + row * 2 * s.heads, 2 * s.heads, kept + s.keys());
      std::copy_n(qkv.data() + row * s.width() + 2 * s.keys(), s.value_width(),
                  drafts.data() + values_at(s, held, request.slot, draft));
    }
  }
  StateBench bench("gated_delta_net", deterministic, held);
  bench.context.batch_kind = kind;
  bench.plan_requests(requests);
  std::vector<HostTensor> operands = in.operands();
  if (held > 0) operands.push_back(draft_rows);
  const OpOutcome got = run_op(kGatedDeltaNet, kGatedDeltaNetCpu, operands, s.attributes(held), bench.context);
  const std::string what = "gated_delta_net " + std::to_string(s.key_dim) + "x" + std::to_string(s.value_dim);
  // On a GPU, matrix products may round their operands to the storage type.
  const bool rounds = on_cuda() && dtype != DType::kFloat32 && !deterministic;
  const Tolerance allowed = rounds ? Tolerance{1e-2, 2e-2} : Tolerance{2e-6, tolerance(dtype, 1.5).relative};
  expect_close(got.results[0], out, allowed, what);
  expect_close(got.operands[4], state, rounds ? Tolerance{2e-2, 2e-2} : Tolerance{4e-6, 4e-6}, what + ", states");
  if (held > 0) {
    EXPECT_EQ(got.operands[5].values(), drafts) << what << ", drafts";
  }
}

class GatedDeltaNet : public ::testing::TestWithParam<DType> {};

const std::vector<StateRequest> kMixed = {{.rows = 1, .slot = 3},
                                          {.rows = 63, .slot = 1},
                                          {.rows = 64, .before = 5, .slot = 7},
                                          {.rows = 65, .slot = 2},
                                          {.rows = 200, .before = 130, .slot = 11},
                                          {.rows = 1, .before = 17, .slot = 5},
                                          {.rows = 9, .before = 1, .slot = 4}};

TEST_P(GatedDeltaNet, EqualsTheReference) {
  for (const DeltaSizes& sizes : {DeltaSizes{2, 6, 16, 16}, {1, 3, 32, 64}, {2, 2, 24, 40}, {1, 2, 128, 128}})
    check(GetParam(), sizes, kMixed);
}

const std::vector<StateRequest> kWithDrafts = {{.rows = 4, .before = 9, .slot = 3, .drafts = 3},
                                               {.rows = 90, .slot = 1, .drafts = 1},
                                               {.rows = 70, .before = 5, .slot = 7, .drafts = 69},
                                               {.rows = 80, .before = 3, .slot = 2},
                                               {.rows = 20, .before = 6, .slot = 11, .drafts = 8},
                                               {.rows = 1, .before = 17, .slot = 5},
                                               {.rows = 2, .slot = 4, .drafts = 1}};

TEST_P(GatedDeltaNet, StatesLeaveDraftsOut) {
  for (const bool deterministic : {false, true})
    for (const DeltaSizes& sizes : {DeltaSizes{2, 6, 16, 16}, {2, 2, 24, 40}, {1, 2, 128, 128}})
      check(GetParam(), sizes, kWithDrafts, deterministic, BatchKind::kExtend, 69);
}

TEST_P(GatedDeltaNet, AdvancesStatesOverAcceptedDrafts) {
  const std::vector<StateRequest> extends = {{.rows = 4, .before = 9, .slot = 3, .drafts = 3, .accepted = 2},
                                             {.rows = 1, .before = 70, .slot = 1, .accepted = 69},
                                             {.rows = 80, .before = 5, .slot = 7, .accepted = 3},
                                             {.rows = 90, .before = 4, .slot = 8},
                                             {.rows = 20, .before = 6, .slot = 11, .drafts = 19, .accepted = 1},
                                             {.rows = 3, .slot = 4, .drafts = 2}};
  const std::vector<StateRequest> decodes{{.before = 3, .slot = 1, .accepted = 2},
                                          {.before = 9, .slot = 2},
                                          {.slot = 9},
                                          {.before = 9, .slot = 5, .accepted = 1}};
  const std::vector<StateRequest> checks{{.rows = 3, .before = 12, .slot = 1, .drafts = 2, .accepted = 2},
                                         {.before = 9, .slot = 2},
                                         {.rows = 2, .before = 7, .slot = 9, .drafts = 1, .accepted = 1},
                                         {.rows = 3, .slot = 5, .drafts = 2}};
  for (const bool deterministic : {false, true})
    for (const DeltaSizes& sizes : {DeltaSizes{2, 6, 16, 16}, {2, 2, 24, 40}, {1, 2, 128, 128}, {1, 1, 256, 256}}) {
      check(GetParam(), sizes, extends, deterministic, BatchKind::kExtend, 69);
      check(GetParam(), sizes, decodes, deterministic, BatchKind::kDecode, 2);
      check(GetParam(), sizes, checks, deterministic, BatchKind::kDecode, 2);
    }
}

// Covers checkpoints at the borders of chunks and within them, and checkpoints of requests that have no chunk.
TEST_P(GatedDeltaNet, StoresCheckpointsAmongItsRows) {
  const std::vector<StateRequest> requests = {
      {.rows = 200, .before = 130, .slot = 11, .checkpoint = 64, .checkpoint_slot = 1},
      {.rows = 200, .slot = 2, .checkpoint = 199, .checkpoint_slot = 3},
      {.rows = 17, .before = 9, .slot = 4, .checkpoint = 1, .checkpoint_slot = 5},
      {.rows = 9, .before = 1, .slot = 6, .checkpoint = 4, .checkpoint_slot = 7},
      {.rows = 70, .before = 5, .slot = 8},
      {.rows = 2, .slot = 9, .checkpoint = 1, .checkpoint_slot = 10}};
  for (const bool deterministic : {false, true})
    for (const DeltaSizes& sizes : {DeltaSizes{2, 6, 16, 16}, {2, 2, 24, 40}, {1, 2, 128, 128}})
      check(GetParam(), sizes, requests, deterministic);
  check(GetParam(), {1, 2, 128, 128},
        {{.rows = 3, .before = 9, .slot = 1, .accepted = 2, .checkpoint = 2, .checkpoint_slot = 2},
         {.rows = 90, .before = 5, .slot = 7, .accepted = 3, .checkpoint = 70, .checkpoint_slot = 3}},
        false, BatchKind::kExtend, 3);
  check(GetParam(), {8, 192, 8, 8},
        {{.rows = 300, .slot = 2, .checkpoint = 128, .checkpoint_slot = 3},
         {.rows = 900, .before = 70, .slot = 1, .checkpoint = 550, .checkpoint_slot = 4}});
}

// Covers chunks that follow each other, chunks that end at a multiple of 16 rows or one past it, and requests that have
// no chunk among requests that have chunks.
TEST_P(GatedDeltaNet, EqualsTheReferenceAtTheBordersOfChunks) {
  std::vector<StateRequest> requests;
  for (const std::int32_t rows : {15, 16, 17, 128, 1, 129, 48, 49, 191, 80})
    requests.push_back(
        {.rows = rows, .before = rows % 3 == 0 ? rows : 0, .slot = static_cast<std::int32_t>(requests.size()) + 1});
  for (const DeltaSizes& sizes : {DeltaSizes{1, 2, 128, 128}, {2, 4, 64, 32}, {1, 1, 8, 120}, {1, 2, 20, 12}})
    check(GetParam(), sizes, requests);
}

TEST_P(GatedDeltaNet, EqualsTheReferenceOverManyChunks) {
  check(GetParam(), {1, 2, 128, 128}, {{.rows = 2048, .slot = 3}});
  check(GetParam(), {2, 2, 128, 128}, {{.rows = 3, .slot = 1}, {.rows = 1000, .before = 2048, .slot = 3}});
}

// Covers several windows: there are so many heads that a GPU divides one request's chunks among windows, and one window
// ends inside another request.
TEST_P(GatedDeltaNet, EqualsTheReferenceOverSeveralWindows) {
  check(GetParam(), {8, 192, 8, 8},
        {{.rows = 300, .slot = 2}, {.rows = 5, .before = 9, .slot = 4}, {.rows = 900, .before = 70, .slot = 1}});
}

TEST_P(GatedDeltaNet, EqualsTheReferenceWithManyHeads) {
  check(GetParam(), {16, 48, 128, 128}, {{.rows = 70, .slot = 2}, {.rows = 16, .before = 70, .slot = 1}});
}

TEST_P(GatedDeltaNet, DeterministicForwardsEqualTheReference) {
  for (const DeltaSizes& sizes : {DeltaSizes{2, 6, 16, 16}, {1, 2, 128, 128}}) check(GetParam(), sizes, kMixed, true);
}

TEST_P(GatedDeltaNet, EqualsTheReferenceForNoRequestsAndForDecodes) {
  const std::vector<StateRequest> decodes{
      {.before = 3, .slot = 1}, {.before = 900, .slot = 2}, {.slot = 9}, {.before = 64, .slot = 4}};
  for (const BatchKind kind : {BatchKind::kExtend, BatchKind::kDecode}) {
    check(GetParam(), {2, 4, 16, 16}, {}, false, kind);
    for (const DeltaSizes& sizes : {DeltaSizes{2, 4, 32, 32}, {1, 3, 24, 40}, {1, 1, 256, 256}})
      check(GetParam(), sizes, decodes, false, kind);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, GatedDeltaNet, ::testing::ValuesIn(kFloatingDTypes),
                         [](const auto& dtype) { return std::string(ir::dtype_name(dtype.param)); });

// A request's output rows (as bytes and as values) and its final state.
struct InForwards {
  std::vector<std::byte> rows;
  std::vector<double> values;
  std::vector<std::byte> state;
};
InForwards run_cut(const DeltaSizes& s, const Inputs& in, const std::vector<std::int32_t>& cuts, bool deterministic,
                   bool with_company) {
  StateBench bench("gated_delta_net", deterministic);
  InForwards all;
  HostTensor state = in.state;
  std::int32_t done = 0;
  for (const std::int32_t rows : cuts) {
    std::vector<StateRequest> requests{{.rows = rows, .before = done, .slot = 2}};
    std::vector<HostTensor> operands = in.operands();
    for (const std::size_t i : {0, 1}) operands[i] = slice_rows(operands[i], done, done + rows);
    if (with_company) {  // another request, whose rows come before this request's
      requests.insert(requests.begin(), {.rows = 70, .slot = 6});
      const Inputs other = make_inputs(in.qkv.dtype, s, {requests[0]}, 0, 77);
      for (const std::size_t i : {0, 1}) {
        HostTensor joined = other.operands()[i];
        joined.bytes.insert(joined.bytes.end(), operands[i].bytes.begin(), operands[i].bytes.end());
        joined.dims[0] += rows;
        operands[i] = joined;
      }
    }
    operands[4] = state;
    bench.plan_requests(requests);
    const OpOutcome part = run_op(kGatedDeltaNet, kGatedDeltaNetCpu, operands, s.attributes(), bench.context);
    const std::int64_t first = with_company ? 70 : 0;
    const HostTensor own = slice_rows(part.results[0], first, first + rows);
    all.rows.insert(all.rows.end(), own.bytes.begin(), own.bytes.end());
    const std::vector<double> values = own.values();
    all.values.insert(all.values.end(), values.begin(), values.end());
    state = part.operands[4];
    done += rows;
  }
  all.state = slice_rows(state, 2, 3).bytes;
  return all;
}

const std::vector<std::vector<std::int32_t>> kCuts = {{150},        {1, 149},     {16, 16, 16, 102},
                                                      {63, 64, 23}, {64, 64, 22}, {7, 1, 1, 1, 140}};

TEST_P(GatedDeltaNet, DeterministicBitsDoNotDependOnCutsOrCompany) {
  const DeltaSizes s{1, 2, 32, 48};
  const Inputs in = make_inputs(GetParam(), s, {{.rows = 150, .slot = 2}}, 0, 5);
  const InForwards whole = run_cut(s, in, kCuts[0], true, false);
  for (const auto& cuts : kCuts)
    for (const bool company : {false, true}) {
      const InForwards cut = run_cut(s, in, cuts, true, company);
      EXPECT_EQ(cut.rows, whole.rows) << cuts[0] << company;
      EXPECT_EQ(cut.state, whole.state) << cuts[0] << company;
    }
}

// A batch that only warms kernels up has slot 0 for all requests.
TEST(GatedDeltaNetSlots, SlotZeroIsNeitherReadNorWritten) {
  const DeltaSizes s{1, 2, 16, 16};
  for (const bool deterministic : {false, true}) {
    const std::vector<StateRequest> requests{{.rows = 30, .slot = 0}, {.rows = 30, .before = 9, .slot = 0}};
    Inputs in = make_inputs(DType::kFloat32, s, requests, 0, 8);
    std::fill(in.state.bytes.begin(), in.state.bytes.end(), std::byte{0xff});
    for (const std::size_t i : {0, 1}) {  // the second request's rows equal the first's
      HostTensor& t = i == 0 ? in.qkv : in.ba;
      std::copy_n(t.bytes.begin(), t.bytes.size() / 2,
                  t.bytes.begin() + static_cast<std::ptrdiff_t>(t.bytes.size() / 2));
    }
    StateBench bench("gated_delta_net", deterministic);
    bench.plan_requests(requests);
    const OpOutcome out = run_op(kGatedDeltaNet, kGatedDeltaNetCpu, in.operands(), s.attributes(), bench.context);
    EXPECT_EQ(out.operands[4].bytes, in.state.bytes);
    EXPECT_EQ(slice_rows(out.results[0], 0, 30).bytes, slice_rows(out.results[0], 30, 60).bytes) << "both from zeros";
    EXPECT_FALSE(std::isnan(out.results[0].at(0)));
  }
}

TEST(GatedDeltaNetCuts, ChangeValuesOnlyByRounding) {
  const DeltaSizes s{1, 2, 32, 48};
  const Inputs in = make_inputs(DType::kFloat32, s, {{.rows = 150, .slot = 2}}, 0, 5);
  const InForwards whole = run_cut(s, in, kCuts[0], false, false);
  for (const auto& cuts : kCuts) {
    const InForwards cut = run_cut(s, in, cuts, false, true);
    ASSERT_EQ(cut.values.size(), whole.values.size());
    for (std::size_t i = 0; i < whole.values.size(); ++i) ASSERT_NEAR(cut.values[i], whole.values[i], 4e-6) << i;
  }
}

// A graph that was recorded for 80 rows works for every batch of at most 80 rows.
TEST(GatedDeltaNetGraph, ReplaysWithOtherRequests) {
  const DeltaSizes s{1, 2, 16, 16};
  constexpr std::int64_t kHeld = 3;
  const Inputs in = make_inputs(DType::kFloat32, s, {{.rows = 80, .before = 1, .slot = 3}}, 0, 3);
  std::vector<HostTensor> operands = in.operands();
  operands.push_back(random_tensor(DType::kFloat32, {kNumSlots, s.slot_width(kHeld)}, 9));
  const ir::Attributes attributes = s.attributes(kHeld);
  StateBench bench("gated_delta_net", false, kHeld);
  const auto kernel = kernel_under_test(kGatedDeltaNetCpu);
  ASSERT_TRUE(kernel.ok());
  const auto recorded = OpCase::create(test_device(), kGatedDeltaNet, **kernel, operands, attributes, bench.context);
  ASSERT_TRUE(recorded.ok()) << recorded.status().message();
  bench.plan_requests({{.rows = 80}});
  ASSERT_TRUE((*recorded)->record().ok());
  for (const std::vector<StateRequest>& requests :
       {std::vector<StateRequest>{{.rows = 1, .before = 4, .slot = 3}},
        {{.rows = 70, .slot = 2}, {.rows = 8, .before = 1, .slot = 3}},
        {{.rows = 4, .before = 4, .slot = 3, .drafts = 3, .accepted = 2}, {.rows = 9, .slot = 1}},
        {}}) {
    bench.plan_requests(requests);
    ASSERT_TRUE((*recorded)->load(operands).ok());
    ASSERT_TRUE((*recorded)->replay().ok());
    const OpOutcome alone = run_op(kGatedDeltaNet, kGatedDeltaNetCpu, operands, attributes, bench.context);
    EXPECT_EQ((*recorded)->results()->front().bytes, alone.results[0].bytes);
    for (const std::size_t i : {4, 5})
      EXPECT_EQ((*(*recorded)->operands())[i].bytes, alone.operands[i].bytes) << "operand " << i;
  }
}

}  // namespace
}  // namespace tessera::testing
