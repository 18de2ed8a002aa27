// Catches: a batch sent to the wrong runner or size, padding where it is disabled, and a decision without the reason
// that was decisive.
#include "tessera/runner/dispatch.h"

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
  return a.runner == b.runner && a.size == b.size && a.padding == b.padding && a.reason == b.reason;
}

namespace {

DispatchTable graphs(bool graphs_enabled, bool prefill, bool decode, bool decode_padding = true) {
  return {.graphs_enabled = graphs_enabled,
          .prefill_enabled = prefill,
          .decode_enabled = decode,
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
  return {.tokens = tokens, .requests = requests, .one_row_each = false};
}
BatchShape decode(std::int64_t requests) { return {.tokens = requests, .requests = requests, .one_row_each = true}; }
BatchShape decode_of_other_rows(std::int64_t requests) { return {.tokens = requests, .requests = requests}; }
BatchShape forced(BatchShape shape) {
  shape.force_eager = true;
  return shape;
}

struct Case {
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
const DispatchTable kEmpty = graphs(true, true, true);

std::vector<Case> cases() {
  using enum RunnerKind;
  using enum Reason;
  return {
      // Prefill: the size itself, the next one, the edges.
      {extend(4), kOn, {kPrefill, 4, 0, kExactSize}},
      {extend(5), kOn, {kPrefill, 8, 3, kPaddedToSize}},
      {extend(2), kOn, {kPrefill, 4, 2, kPaddedToSize}},
      {extend(64), kOn, {kPrefill, 64, 0, kExactSize}},
      {extend(65), kOn, {kEager, 65, 0, kAboveLargestSize}},
      // Mixed and many requests are prefill.
      {extend(9, 3), kOn, {kPrefill, 64, 55, kPaddedToSize}},
      // Decode.
      {decode(1), kOn, {RunnerKind::kDecode, 1, 0, kExactSize}},
      {decode(3), kOn, {RunnerKind::kDecode, 6, 3, kPaddedToSize}},
      {decode(6), kOn, {RunnerKind::kDecode, 6, 0, kExactSize}},
      {decode(7), kOn, {kEager, 7, 0, kAboveLargestSize}},
      {decode(2), kExactDecode, {RunnerKind::kDecode, 2, 0, kExactSize}},
      {decode(3), kExactDecode, {kEager, 3, 0, kPaddingDisabled}},
      {decode(7), kExactDecode, {kEager, 7, 0, kAboveLargestSize}},
      {extend(5), kExactDecode, {kPrefill, 8, 3, kPaddedToSize}},
      // A decode batch whose rows are wanted otherwise is a prefill, where there is one.
      {decode_of_other_rows(3), kOn, {kPrefill, 4, 1, kPaddedToSize}},
      {decode_of_other_rows(3), kDecodeOnly, {kEager, 3, 0, kRowsNotOneEach}},
      // Switched off, one or both.
      {extend(4), kOff, {kEager, 4, 0, kGraphsDisabled}},
      {decode(1), kOff, {kEager, 1, 0, kGraphsDisabled}},
      {extend(4), kDecodeOnly, {kEager, 4, 0, kPrefillGraphsDisabled}},
      {decode(2), kDecodeOnly, {RunnerKind::kDecode, 2, 0, kExactSize}},
      {decode(3), kPrefillOnly, {kPrefill, 4, 1, kPaddedToSize}},
      {decode(7), kPrefillOnly, {kPrefill, 8, 1, kPaddedToSize}},
      {decode(1), kNeither, {kEager, 1, 0, kDecodeGraphsDisabled}},
      {extend(4), kNeither, {kEager, 4, 0, kPrefillGraphsDisabled}},
      // Padding of a prefill that keeps the device busy anyway.
      {extend(1500), kLarge, {kPrefill, 2048, 548, kPaddedToSize}},
      {extend(4060, 5), kLarge, {kPrefill, 4096, 36, kPaddedToSize}},
      {extend(4096), kLarge, {kPrefill, 4096, 0, kExactSize}},
      {extend(4100, 17), kLarge, {kEager, 4100, 0, kPaddingCostsMore}},
      {extend(5000), kLarge, {kEager, 5000, 0, kAboveLargestSize}},
      // Every size was dropped.
      {extend(4), kEmpty, {kEager, 4, 0, kNothingCaptured}},
      {decode(1), kEmpty, {kEager, 1, 0, kNothingCaptured}},
      // Asking for eager comes first.
      {forced(extend(4)), kOn, {kEager, 4, 0, kEagerRequested}},
      {forced(decode(1)), kOff, {kEager, 1, 0, kEagerRequested}},
  };
}

TEST(Dispatch, EveryCaseGetsItsRunnerSizeAndReason) {
  std::set<Reason> fired;
  int number = 0;
  for (const Case& c : cases()) {
    EXPECT_EQ(dispatch(c.batch, c.table), c.decision) << "case " << number;
    fired.insert(c.decision.reason);
    ++number;
  }
  EXPECT_EQ(fired.size(), static_cast<std::size_t>(kNumReasons)) << "a reason without a case";
}

TEST(Dispatch, NeverPadsDownAndNeverMoreThanToTheNextSize) {
  for (std::int64_t tokens = 1; tokens <= 70; ++tokens) {
    const Decision d = dispatch(extend(tokens), kOn);
    EXPECT_EQ(d.size, tokens + d.padding);
    if (d.runner == RunnerKind::kEager) continue;
    const auto next = std::lower_bound(kOn.prefill_sizes.begin(), kOn.prefill_sizes.end(), tokens);
    EXPECT_EQ(d.size, *next) << tokens;
  }
}

TEST(Dispatch, ReasonsHaveTextsAndNamesOfTheirOwn) {
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
