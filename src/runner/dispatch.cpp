#include "tessera/runner/dispatch.h"

#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

struct ReasonNames {
  std::string_view name;
  std::string_view text;
};
constexpr std::array<ReasonNames, kNumReasons> kReasons = {{
    {"exact_size", "a graph of this size"},
    {"padded_to_size", "padded to the next captured size"},
    {"graphs_disabled", "graphs are disabled"},
    {"prefill_graphs_disabled", "piecewise graphs are disabled"},
    {"decode_graphs_disabled", "decode graphs are disabled"},
    {"above_largest_size", "above the largest captured size"},
    {"padding_disabled", "no graph of this size, and padding is disabled"},
    {"nothing_captured", "no size was captured"},
    {"padding_costs_more", "the padding would cost more than a replay saves"},
    {"rows_not_one_each", "logits are not wanted row by row"},
    {"eager_requested", "eager was asked for"},
}};

Decision eager(const BatchShape& batch, Reason reason) { return {RunnerKind::kEager, batch.tokens, 0, reason}; }

Decision pick(const BatchShape& batch, RunnerKind runner, std::span<const std::int64_t> sizes, bool padding) {
  if (sizes.empty()) return eager(batch, Reason::kNothingCaptured);
  const std::optional<std::int64_t> size = round_up(sizes, batch.tokens);
  if (!size) return eager(batch, Reason::kAboveLargestSize);
  if (*size != batch.tokens && !padding) return eager(batch, Reason::kPaddingDisabled);
  const std::int64_t rows = *size - batch.tokens;
  const bool costs_more = static_cast<double>(rows) > kMostPaddingOfBusy * static_cast<double>(batch.tokens);
  if (batch.tokens > kBusyTokens && costs_more) return eager(batch, Reason::kPaddingCostsMore);
  return {runner, *size, rows, *size == batch.tokens ? Reason::kExactSize : Reason::kPaddedToSize};
}

}  // namespace

std::string_view runner_kind_name(RunnerKind kind) {
  switch (kind) {
    case RunnerKind::kEager: return "eager";
    case RunnerKind::kPrefill: return "prefill";
    case RunnerKind::kDecode: return "decode";
  }
  return "unknown";
}

std::string_view reason_text(Reason reason) { return kReasons[static_cast<std::size_t>(reason)].text; }
std::string_view reason_name(Reason reason) { return kReasons[static_cast<std::size_t>(reason)].name; }

Decision dispatch(const BatchShape& batch, const DispatchTable& table) {
  if (batch.force_eager) return eager(batch, Reason::kEagerRequested);
  if (!table.graphs_enabled) return eager(batch, Reason::kGraphsDisabled);
  const bool is_decode = batch.tokens == batch.requests;
  if (is_decode && table.decode_enabled) {
    if (batch.one_row_each) return pick(batch, RunnerKind::kDecode, table.decode_sizes, table.decode_padding);
    if (!table.prefill_enabled) return eager(batch, Reason::kRowsNotOneEach);
  }
  if (!table.prefill_enabled)
    return eager(batch, is_decode ? Reason::kDecodeGraphsDisabled : Reason::kPrefillGraphsDisabled);
  return pick(batch, RunnerKind::kPrefill, table.prefill_sizes, /*padding=*/true);
}

}  // namespace tessera
