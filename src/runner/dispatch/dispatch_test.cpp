// Catches: a batch that gets the wrong runner or size; padding although it is disabled or was measured to cost more; a
// reported reason that did not cause the decision; and a prompt that is split although this costs more, that is not
// split although a split costs less, or that is split at a size without a graph.
#include "tessera/runner/dispatch/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <set>

namespace tessera {

std::ostream& operator<<(std::ostream& out, const Decision& d) {
  return out << runner_kind_name(d.runner) << " " << d.size << " +" << d.padding << " " << reason_name(d.reason);
}
bool operator==(const Decision& a, const Decision& b) {
  return a.runner == b.runner && a.size == b.size && a.padding == b.padding && a.reason == b.reason && a.form == b.form;
}

namespace {

DispatchTable graphs(bool graphs_enabled, bool prefill, bool decode_shape, bool decode_padding = true) {
  return {.graphs_enabled = graphs_enabled,
          .prefill_enabled = prefill,
          .decode_enabled = decode_shape,
          .decode_padding = decode_padding,
          .prefill_sizes = {},
          .decode_sizes = {}};
}
DispatchTable with_sizes(DispatchTable table) {
  table.prefill_sizes = {4, 8, 64};
  table.decode_sizes = {1, 2, 6};
  return table;
}
BatchShape extend(std::int64_t tokens, std::int64_t requests = 1) {
  return {.tokens = tokens, .requests = requests, .all_rows_wanted = false};
}
BatchShape decode_shape(std::int64_t requests) {
  return {.tokens = requests, .requests = requests, .decodes = true, .all_rows_wanted = true};
}
BatchShape decode_of_other_rows(std::int64_t requests) {
  return {.tokens = requests, .requests = requests, .decodes = true};
}
// Returns a decode batch in which requests have drafts.
BatchShape drafts(std::int64_t rows, std::int64_t requests) {
  return {.tokens = rows, .requests = requests, .decodes = true, .all_rows_wanted = true};
}
BatchShape forced(BatchShape shape) {
  shape.force_eager = true;
  return shape;
}

struct DispatchCase {
  BatchShape batch;
  DispatchTable table;
  Decision decision;
};

const DispatchTable kOn = with_sizes(graphs(true, true, true));
const DispatchTable kOff = with_sizes(graphs(false, true, true));
const DispatchTable kPrefillOnly = with_sizes(graphs(true, true, false));
const DispatchTable kDecodeOnly = with_sizes(graphs(true, false, true));
const DispatchTable kNeither = with_sizes(graphs(true, false, false));
const DispatchTable kExactDecode = with_sizes(graphs(true, true, true, false));
const DispatchTable kLarge = [] {
  DispatchTable table = graphs(true, true, true);
  table.prefill_sizes = {2048, 4096, 4608};
  return table;
}();
// Costs with which a replay takes 1 ms less than an eager run. The first 1000 tokens cost 1 µs each, and further tokens
// cost 2 µs each.
const CostTable kCosts = [] {
  CostTable costs;
  for (const std::int64_t size : {4, 8, 64, 1000, 2000}) {
    const double ms = 1e-3 * static_cast<double>(size + std::max<std::int64_t>(size - 1000, 0));
    costs.add(RunnerKind::kPrefill, size, 1 + ms);
    costs.add(RunnerKind::kEager, size, 2 + ms);
  }
  costs.add(RunnerKind::kDecode, 2, 1);
  costs.add(RunnerKind::kDecode, 6, 100);
  return costs;
}();
DispatchTable with_costs(std::vector<std::int64_t> sizes, const CostTable& costs = kCosts) {
  DispatchTable table = with_sizes(graphs(true, true, true));
  table.prefill_sizes = std::move(sizes);
  table.costs = &costs;
  return table;
}
const DispatchTable kMeasured = with_costs({64, 1000, 2000});
const DispatchTable kEmpty = graphs(true, true, true);
const DispatchTable kFull = [] {
  DispatchTable table = with_costs({4, 8, 64, 1000, 2000});
  table.full_sizes = {8, 2000};
  return table;
}();
BatchShape prompts(std::int64_t tokens, std::int64_t requests = 1) {
  BatchShape shape = extend(tokens, requests);
  shape.several_rows_each = true;
  return shape;
}
Decision full(std::int64_t size, std::int64_t padding) {
  return {RunnerKind::kPrefill, size, padding, Reason::kFullCostsLess, GraphForm::kFull};
}

std::vector<DispatchCase> cases() {
  using enum RunnerKind;
  using enum Reason;
  return {
      // Prefills of a captured size, of a size between two captured sizes, and of sizes at the ends of the ladder.
      {extend(4), kOn, {kPrefill, 4, 0, kExactSize}},
      {extend(5), kOn, {kPrefill, 8, 3, kPaddedToSize}},
      {extend(2), kOn, {kPrefill, 4, 2, kPaddedToSize}},
      {extend(64), kOn, {kPrefill, 64, 0, kExactSize}},
      {extend(65), kOn, {kEager, 65, 0, kAboveLargestSize}},
      // Mixed batches and many requests are prefills.
      {extend(9, 3), kOn, {kPrefill, 64, 55, kPaddedToSize}},
      // Decodes within the decode sizes.
      {decode_shape(1), kOn, {RunnerKind::kDecode, 1, 0, kExactSize}},
      {decode_shape(3), kOn, {RunnerKind::kDecode, 6, 3, kPaddedToSize}},
      {decode_shape(6), kOn, {RunnerKind::kDecode, 6, 0, kExactSize}},
      // A batch with more requests than any decode graph runs as a prefill.
      {decode_shape(7), kOn, {kPrefill, 8, 1, kPaddedToSize}},
      {decode_shape(8), kOn, {kPrefill, 8, 0, kExactSize}},
      {decode_shape(65), kOn, {kEager, 65, 0, kAboveLargestSize}},
      {decode_shape(7), kDecodeOnly, {kEager, 7, 0, kAboveLargestSize}},
      {decode_shape(7), with_costs({}), {kEager, 7, 0, kAboveLargestSize}},
      {decode_shape(2), kExactDecode, {RunnerKind::kDecode, 2, 0, kExactSize}},
      {decode_shape(3), kExactDecode, {kEager, 3, 0, kPaddingDisabled}},
      {decode_shape(7), kExactDecode, {kPrefill, 8, 1, kPaddedToSize}},
      {extend(5), kExactDecode, {kPrefill, 8, 3, kPaddedToSize}},
      // A decode batch that does not want every row runs as a prefill, if prefill graphs are on.
      {decode_of_other_rows(3), kOn, {kPrefill, 4, 1, kPaddedToSize}},
      {decode_of_other_rows(3), kDecodeOnly, {kEager, 3, 0, kRowsNotOneEach}},
      // One or both kinds of graphs are switched off.
      {extend(4), kOff, {kEager, 4, 0, kGraphsDisabled}},
      {decode_shape(1), kOff, {kEager, 1, 0, kGraphsDisabled}},
      {extend(4), kDecodeOnly, {kEager, 4, 0, kPrefillGraphsDisabled}},
      {decode_shape(2), kDecodeOnly, {RunnerKind::kDecode, 2, 0, kExactSize}},
      {decode_shape(3), kPrefillOnly, {kPrefill, 4, 1, kPaddedToSize}},
      {decode_shape(7), kPrefillOnly, {kPrefill, 8, 1, kPaddedToSize}},
      {decode_shape(1), kNeither, {kEager, 1, 0, kDecodeGraphsDisabled}},
      {extend(4), kNeither, {kEager, 4, 0, kPrefillGraphsDisabled}},
      // A prefill uses a full graph that is faster than its pieces, if every request has several rows.
      {prompts(8), kFull, full(8, 0)},
      {prompts(7, 3), kFull, full(8, 1)},
      {extend(8, 3), kFull, {kPrefill, 8, 0, kExactSize}},
      {prompts(4), kFull, {kPrefill, 4, 0, kExactSize}},
      {prompts(64), kFull, {kPrefill, 64, 0, kExactSize}},
      {prompts(2001), kFull, {kEager, 2001, 0, kAboveLargestSize}},
      {prompts(1001), kFull, {kEager, 1001, 0, kPaddingCostsMore}},
      {decode_shape(7), kFull, {kPrefill, 8, 1, kPaddedToSize}},
      // Without measurements, even a prefill that keeps the device busy is padded.
      {extend(1500), kLarge, {kPrefill, 2048, 548, kPaddedToSize}},
      {extend(4060, 5), kLarge, {kPrefill, 4096, 36, kPaddedToSize}},
      {extend(4096), kLarge, {kPrefill, 4096, 0, kExactSize}},
      {extend(4100, 17), kLarge, {kPrefill, 4608, 508, kPaddedToSize}},
      {extend(5000), kLarge, {kEager, 5000, 0, kAboveLargestSize}},
      // With measured costs: an eager run of 990 tokens takes 2.99 ms, a replay of 1000 tokens takes 2.0 ms, and a
      // replay of 2000 tokens takes 4.0 ms.
      {extend(990), kMeasured, {kPrefill, 1000, 10, kPaddedToSize}},
      {extend(65), kMeasured, {kPrefill, 1000, 935, kPaddedToSize}},
      {extend(1001), kMeasured, {kEager, 1001, 0, kPaddingCostsMore}},
      {extend(1400), kMeasured, {kEager, 1400, 0, kPaddingCostsMore}},  // the eager run takes 3.80 ms
      {extend(1410), kMeasured, {kPrefill, 2000, 590, kPaddedToSize}},  // eager: 3.82 ms, a difference within the noise
      {extend(2000), kMeasured, {kPrefill, 2000, 0, kExactSize}},
      {extend(2001), kMeasured, {kEager, 2001, 0, kAboveLargestSize}},
      {decode_shape(3), kMeasured, {RunnerKind::kDecode, 6, 3, kPaddedToSize}},
      // Every size was dropped.
      {extend(4), kEmpty, {kEager, 4, 0, kNothingCaptured}},
      {decode_shape(1), kEmpty, {kEager, 1, 0, kNothingCaptured}},
      // force_eager overrides every other reason.
      {forced(extend(4)), kOn, {kEager, 4, 0, kEagerRequested}},
      {forced(decode_shape(1)), kOff, {kEager, 1, 0, kEagerRequested}},
  };
}

TEST(Dispatch, EveryCaseGetsItsRunnerSizeAndReason) {
  std::set<Reason> fired;
  int number = 0;
  for (const DispatchCase& c : cases()) {
    EXPECT_EQ(dispatch(c.batch, c.table), c.decision) << "case " << number;
    fired.insert(c.decision.reason);
    ++number;
  }
  fired.insert(Reason::kReplayFailed);  // the runner sets it after a failed replay; dispatch never returns it
  EXPECT_EQ(fired.size(), static_cast<std::size_t>(kNumReasons)) << "a reason without a case";
}

TEST(Dispatch, PadsOnlyToTheNextSize) {
  for (std::int64_t tokens = 1; tokens <= 70; ++tokens) {
    const Decision d = dispatch(extend(tokens), kOn);
    EXPECT_EQ(d.size, tokens + d.padding);
    if (d.runner == RunnerKind::kEager) continue;
    const auto next = std::lower_bound(kOn.prefill_sizes.begin(), kOn.prefill_sizes.end(), tokens);
    EXPECT_EQ(d.size, *next) << tokens;
  }
}

TEST(Dispatch, DraftsUseTheDecodeGraphOfTheirRows) {
  EXPECT_EQ(dispatch(drafts(5, 2), kOn), (Decision{RunnerKind::kDecode, 6, 1, Reason::kPaddedToSize}));
  EXPECT_EQ(dispatch(drafts(8, 2), kOn), (Decision{RunnerKind::kPrefill, 8, 0, Reason::kExactSize}))
      << "more rows than the largest decode graph has";
  EXPECT_EQ(dispatch(drafts(5, 2), kPrefillOnly), (Decision{RunnerKind::kPrefill, 8, 3, Reason::kPaddedToSize}));
}

TEST(Dispatch, PadsWhereCostsAreUnknown) {
  CostTable only_replays;
  only_replays.add(RunnerKind::kPrefill, 64, 5);
  only_replays.add(RunnerKind::kPrefill, 1000, 9);
  CostTable only_eager;
  only_eager.add(RunnerKind::kEager, 64, 1);
  only_eager.add(RunnerKind::kEager, 1000, 9);
  const CostTable nothing;
  const Decision padded{RunnerKind::kPrefill, 1000, 935, Reason::kPaddedToSize};
  for (const CostTable& costs : {only_replays, only_eager, nothing}) {
    const DispatchTable table = with_costs({64, 1000}, costs);
    EXPECT_EQ(dispatch(extend(65), table), padded);
    EXPECT_EQ(split_tokens(65, table), 65);
  }
}

TEST(SplitTokens, WithoutCostsOnlyWhatNoGraphServesIsCut) {
  const struct {
    std::int64_t tokens;
    std::vector<std::int64_t> sizes;
    std::int64_t first;
  } cases[] = {
      {1, {4, 2048}, 1},       {5, {4, 2048}, 5},       {2047, {4, 2048}, 2047},
      {2048, {4, 2048}, 2048}, {2049, {4, 2048}, 2048}, {8192, {4, 2048}, 2048},
      {8192, {4, 512}, 512},   {8192, {4, 511}, 8192},  // many small replays would read the weights too often
      {100, {}, 100},
  };
  for (const auto& c : cases) {
    DispatchTable table = graphs(true, true, true);
    table.prefill_sizes = c.sizes;
    EXPECT_EQ(split_tokens(c.tokens, table), c.first) << c.tokens;
    // An empty cost table changes nothing.
    const CostTable nothing;
    table.costs = &nothing;
    EXPECT_EQ(split_tokens(c.tokens, table), c.first) << c.tokens;
  }
  for (const DispatchTable& off : {graphs(false, true, true), graphs(true, false, true)}) {
    DispatchTable table = off;
    table.prefill_sizes = {2048};
    EXPECT_EQ(split_tokens(8192, table), 8192) << "no graphs";
  }
}

// Returns costs with which a replay takes 0.1 ms plus 1 µs a token.
CostTable cheap_launches() {
  CostTable costs;
  for (const std::int64_t size : {1, 4096}) {
    costs.add(RunnerKind::kPrefill, size, 0.1 + 1e-3 * static_cast<double>(size));
    costs.add(RunnerKind::kEager, size, 9 + 1e-3 * static_cast<double>(size));
  }
  return costs;
}

TEST(SplitTokens, TwoReplaysReplaceMuchPadding) {
  const CostTable costs = cheap_launches();
  const DispatchTable table = with_costs({64, 512, 1024, 4096}, costs);
  EXPECT_EQ(split_tokens(1030, table), 1024) << "1.124 + 0.164 ms against 4.196";
  EXPECT_EQ(split_tokens(2048, table), 1024) << "1.124 + 1.124 ms";
  EXPECT_EQ(split_tokens(3900, table), 3900) << "the rest of 2876 would itself be padded to 4096";
  EXPECT_EQ(split_tokens(4096, table), 4096) << "fits";
  EXPECT_EQ(split_tokens(500, table), 500) << "0.612 ms against 0.164 + 0.612";
  EXPECT_EQ(split_tokens(70, table), 64) << "0.328 ms against 0.612";
}

TEST(SplitTokens, PendingSizesAreNotReplayed) {
  const CostTable costs = cheap_launches();
  DispatchTable table = with_costs({64, 128, 4096}, costs);
  EXPECT_EQ(split_tokens(128, table), 128);
  EXPECT_EQ(split_tokens(190, table), 128) << "0.228 + 0.164 ms against 4.196";
  table.waiting = {128};
  EXPECT_EQ(split_tokens(128, table), 64) << "0.164 + 0.164 ms against 4.196";
  EXPECT_EQ(split_tokens(190, table), 190) << "the rest of 126 would itself be padded to 4096";
  table.waiting = {4096};
  EXPECT_EQ(split_tokens(190, table), 190) << "no size holds them";
}

TEST(FillingTokens, IsTheFirstSizeNearTheLeastTokenCost) {
  // The costs per token of the sizes below are 2.56, 1.39, 1.20, 1.10 and 1.02 µs.
  const CostTable costs = cheap_launches();
  EXPECT_EQ(filling_tokens(with_costs({64, 256, 512, 1024, 4096}, costs)), 512);
  EXPECT_EQ(filling_tokens(with_costs({64, 256, 1024, 4096}, costs)), 1024);
  EXPECT_EQ(filling_tokens(with_costs({64}, costs)), 64);
  EXPECT_EQ(filling_tokens(with_costs({64, 256}, CostTable{})), 512) << "nothing was measured";
  EXPECT_EQ(filling_tokens(graphs(true, true, true)), 512) << "costs are not looked at";
}

TEST(SplitTokens, PartsDoNotComeCheaperThanTheWholeUnpadded) {
  // The cost per token rises with the number of tokens, so the measured costs of two parts add up to less than the cost
  // of the whole. This sum lacks the attention of the second part to the first part, so a split must not seem cheaper.
  CostTable costs;
  for (std::int64_t size = 64; size <= 4096; size += 64) {
    const double thousands = 1e-3 * static_cast<double>(size);
    costs.add(RunnerKind::kPrefill, size, 1 + 5 * thousands * thousands);
  }
  EXPECT_EQ(split_tokens(4030, with_costs({64, 2048, 4096}, costs)), 4030);
}

TEST(SplitTokens, AboveTheLargestSizeTheCheaperPlanIsTaken) {
  const CostTable cheap = cheap_launches();
  EXPECT_EQ(split_tokens(8192, with_costs({64, 1024, 4096}, cheap)), 4096);
  EXPECT_EQ(split_tokens(600, with_costs({64}, cheap)), 64) << "ten replays of 0.164 ms against 9.6 ms";
  CostTable dear;
  for (const std::int64_t size : {1, 4096}) {
    dear.add(RunnerKind::kPrefill, size, 5 + 1e-3 * static_cast<double>(size));
    dear.add(RunnerKind::kEager, size, 6 + 1e-3 * static_cast<double>(size));
  }
  EXPECT_EQ(split_tokens(4096, with_costs({64, 1024}, dear)), 4096) << "24.1 ms against 10.1";
  EXPECT_EQ(split_tokens(1100, with_costs({64, 1024}, dear)), 1024) << "the rest goes with the next step";
  EXPECT_EQ(dispatch(extend(4096), with_costs({64, 1024}, dear)).reason, Reason::kAboveLargestSize);
}

TEST(SplitTokens, AlwaysEndsAndUsesOnlyCapturedSizes) {
  const CostTable costs = cheap_launches();
  for (const CostTable* known : {static_cast<const CostTable*>(nullptr), &costs, &kCosts}) {
    DispatchTable table = kLarge;
    table.costs = known;
    for (std::int64_t tokens = 1; tokens < 20000; tokens += 7) {
      std::int64_t left = tokens;
      for (int part = 0; left > 0; ++part) {
        ASSERT_LT(part, 12) << tokens;
        const std::int64_t first = split_tokens(left, table);
        ASSERT_TRUE(first >= 1 && first <= left) << tokens;
        ASSERT_TRUE(first == left || std::ranges::binary_search(table.prefill_sizes, first)) << tokens;
        left -= first;
      }
    }
  }
}

TEST(Dispatch, ABatchWithAdaptersUsesTheirSizesAlone) {
  const CostTable costs = [] {
    CostTable measured;
    measured.add(RunnerKind::kPrefill, 8, 10);
    measured.add(RunnerKind::kEager, 5, 1);  // a prefill of 5 tokens would run eagerly
    return measured;
  }();
  DispatchTable table = kOn;
  table.costs = &costs;
  table.full_sizes = {8};
  table.adapter_prefill_sizes = {8};
  table.adapter_decode_sizes = {3};
  const auto with_adapters = [](BatchShape batch) {
    batch.adapters = batch.several_rows_each = true;
    return batch;
  };
  const Decision prefill = dispatch(with_adapters(extend(5)), table);
  EXPECT_EQ(prefill, (Decision{RunnerKind::kPrefill, 8, 3, Reason::kPaddedToSize}));
  EXPECT_TRUE(prefill.adapters);
  EXPECT_EQ(dispatch(with_adapters(decode_shape(2)), table),
            (Decision{RunnerKind::kDecode, 3, 1, Reason::kPaddedToSize}));
  const Decision above = dispatch(with_adapters(extend(9)), table);
  EXPECT_EQ(above, (Decision{RunnerKind::kEager, 9, 0, Reason::kAboveLargestSize}));
  EXPECT_TRUE(above.adapters);
  EXPECT_FALSE(dispatch(decode_shape(2), table).adapters);
}

TEST(Dispatch, EveryReasonHasItsOwnNameAndText) {
  std::set<std::string_view> names;
  for (int r = 0; r < kNumReasons; ++r) {
    const auto reason = static_cast<Reason>(r);
    EXPECT_FALSE(reason_text(reason).empty());
    EXPECT_EQ(reason_name(reason).find(' '), std::string_view::npos) << "a counter's label";
    names.insert(reason_name(reason));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kNumReasons));
  EXPECT_EQ(reason_name(Reason::kEagerRequested), "eager_requested");
  EXPECT_EQ(reason_text(Reason::kPaddedToSize), "padded to the next captured size");
}

}  // namespace
}  // namespace tessera
