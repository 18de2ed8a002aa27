#include "tessera/runner/dispatch/dispatch.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <ranges>

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
    {"rows_not_one_each", "the decode batch does not want the logits of every row"},
    {"eager_requested", "the caller asked for an eager forward"},
    {"replay_failed", "the replay failed"},
    {"full_costs_less", "one graph with attention inside was measured to be faster than piecewise graphs"},
}};

// An eager run replaces a padded replay only if it is cheaper by more than this factor. Measurements differ by 2 % from
// run to run, and an eager run may seem 5 % faster than a replay of the same kernels
// (docs/measurements/prefill-decode.md, 4096 tokens). A replay also takes less of the host's time than an eager run. If
// a prompt is split into two forwards, the margin also covers two costs that the table does not contain. The second
// forward must be staged, and its attention reads the tokens of the first.
constexpr double kMargin = 1.05;
// If a forward has about this many tokens or more, its time is proportional to its number of tokens, so a split costs
// little. On an H200, two forwards of 512 tokens take as long as one forward of 1024 tokens with Llama-3-8B, and 4/3 of
// this time with Qwen3-0.6B (docs/measurements/prefill-decode.md). With fewer tokens most of the time goes into reading
// the weights, and each part of a split prompt reads them again.
constexpr std::int64_t kBusyTokens = 512;
constexpr double kNearlyLeast = 1.25;  // in filling_tokens(), the largest accepted time per token divided by the least

Decision eager(const BatchShape& batch, Reason reason) { return {RunnerKind::kEager, batch.tokens, 0, reason}; }

struct Choice {
  RunnerKind runner;
  std::span<const std::int64_t> sizes;
  bool padding;
  const CostTable* costs;
};

bool padding_costs_more(std::int64_t tokens, std::int64_t size, RunnerKind runner, const CostTable& costs) {
  const std::optional<double> padded = costs.ms(runner, size);
  const std::optional<double> unpadded = costs.ms(RunnerKind::kEager, tokens);
  return size != tokens && padded && unpadded && *unpadded * kMargin < *padded;
}

Decision pick(const BatchShape& batch, const Choice& choice) {
  const std::optional<std::int64_t> size = round_up(choice.sizes, batch.tokens);
  if (!size) return eager(batch, choice.sizes.empty() ? Reason::kNothingCaptured : Reason::kAboveLargestSize);
  if (*size == batch.tokens) return {choice.runner, *size, 0, Reason::kExactSize};
  if (!choice.padding) return eager(batch, Reason::kPaddingDisabled);
  if (choice.costs != nullptr && padding_costs_more(batch.tokens, *size, choice.runner, *choice.costs))
    return eager(batch, Reason::kPaddingCostsMore);
  return {choice.runner, *size, *size - batch.tokens, Reason::kPaddedToSize};
}

using Sizes = std::span<const std::int64_t>;

// The prefill sizes that can be replayed now. They are the members of `sizes` that are not in `waiting`. Both lists are
// ascending.
struct Replayable {
  Sizes sizes;
  Sizes waiting;

  bool has(std::int64_t size) const { return !std::ranges::binary_search(waiting, size); }
  // Returns the smallest size that is at least `tokens`, or nothing if there is none.
  std::optional<std::int64_t> padded(std::int64_t tokens) const {
    const auto next = std::find_if(std::ranges::lower_bound(sizes, tokens), sizes.end(),
                                   [this](std::int64_t size) { return has(size); });
    return next == sizes.end() ? std::nullopt : std::optional(*next);
  }
};

// Returns the time in milliseconds of a forward of `tokens` tokens. The forward is padded or eager, as dispatch() would
// decide. Returns nothing if the time is not known. Precondition: some size is at least `tokens`.
std::optional<double> best_ms(std::int64_t tokens, const Replayable& sizes, const CostTable& costs) {
  const std::int64_t size = *sizes.padded(tokens);
  return padding_costs_more(tokens, size, RunnerKind::kPrefill, costs) ? costs.ms(RunnerKind::kEager, tokens)
                                                                       : costs.ms(RunnerKind::kPrefill, size);
}

std::int64_t split_within(std::int64_t tokens, const Replayable& sizes, const CostTable& costs) {
  if (sizes.padded(tokens).value_or(tokens) == tokens) return tokens;
  const std::optional<double> whole = best_ms(tokens, sizes, costs);
  const std::optional<double> unpadded = costs.ms(RunnerKind::kPrefill, tokens);
  if (!whole || !unpadded) return tokens;
  std::int64_t best = tokens;
  double best_sum = *whole / kMargin;
  for (const std::int64_t first : std::views::reverse(sizes.sizes)) {
    if (first >= tokens || !sizes.has(first)) continue;
    const std::optional<double> head = costs.ms(RunnerKind::kPrefill, first);
    const std::optional<double> rest = best_ms(tokens - first, sizes, costs);
    if (!head || !rest) continue;
    // The table's costs were measured without cached prefixes. The second part of a split also attends to the first
    // part, and its cost lacks this work. The sum is therefore taken to be at least the cost of one unpadded forward.
    const double sum = std::max(*head + *rest, *unpadded);
    if (sum >= best_sum) continue;
    best_sum = sum;
    best = first;
  }
  return best;
}

// Decides how to run a prefill of more tokens than the largest size: in one eager forward, or by a replay of the
// largest size now and the remaining tokens later. The remaining tokens are assumed to cost as much per token as the
// replay. They need no forward of their own: running decodes need a next step in any case, and that step also computes
// these tokens.
std::int64_t split_above(std::int64_t tokens, Sizes sizes, const CostTable* costs) {
  const std::int64_t largest = sizes.back();
  if (costs != nullptr) {
    const std::optional<double> at_once = costs->ms(RunnerKind::kEager, tokens);
    const std::optional<double> part = costs->ms(RunnerKind::kPrefill, largest);
    const double parts = static_cast<double>(tokens) / static_cast<double>(largest);
    if (at_once && part) return *at_once * kMargin < parts * *part ? tokens : largest;
  }
  return largest >= kBusyTokens ? largest : tokens;
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

BatchShape shape_of(const ForwardBatch& batch, bool force_eager) {
  bool all_wanted = batch.num_wanted_rows() == batch.num_tokens();
  for (std::size_t i = 0; all_wanted && i < batch.wanted_rows.size(); ++i)
    all_wanted = batch.wanted_rows[i] == static_cast<std::int32_t>(i);
  return {.tokens = batch.num_tokens(),
          .requests = batch.num_requests(),
          .decodes = batch.is_decode_with_drafts(),
          .all_rows_wanted = all_wanted,
          .several_rows_each =
              !batch.has_drafts() && std::ranges::all_of(batch.query_lens, [](std::int32_t rows) { return rows > 1; }),
          .force_eager = force_eager,
          .adapters = batch.has_adapters()};
}

bool is_replay(Reason reason) {
  return reason == Reason::kExactSize || reason == Reason::kPaddedToSize || reason == Reason::kFullCostsLess;
}

bool is_fallback(Reason reason) {
  switch (reason) {
    case Reason::kAboveLargestSize:
    case Reason::kPaddingDisabled:
    case Reason::kNothingCaptured:
    case Reason::kRowsNotOneEach:
    case Reason::kReplayFailed: return true;
    default: return false;
  }
}

namespace {

Decision choose(const BatchShape& batch, const DispatchTable& table) {
  if (batch.force_eager) return eager(batch, Reason::kEagerRequested);
  if (!table.graphs_enabled) return eager(batch, Reason::kGraphsDisabled);
  const std::vector<std::int64_t>& prefill_sizes = batch.adapters ? table.adapter_prefill_sizes : table.prefill_sizes;
  const std::vector<std::int64_t>& decode_sizes = batch.adapters ? table.adapter_decode_sizes : table.decode_sizes;
  const bool has_pieces = table.prefill_enabled && !prefill_sizes.empty();
  if (batch.decodes && table.decode_enabled) {
    // If a decode has more rows than the largest decode graph, it runs on prefill graphs instead. With so many rows,
    // the gaps between pieces cost little.
    const bool above = !decode_sizes.empty() && batch.tokens > decode_sizes.back();
    if (batch.all_rows_wanted && !(has_pieces && above))
      return pick(batch, {RunnerKind::kDecode, decode_sizes, table.decode_padding, nullptr});
    if (!table.prefill_enabled) return eager(batch, Reason::kRowsNotOneEach);
  }
  if (!table.prefill_enabled)
    return eager(batch, batch.decodes ? Reason::kDecodeGraphsDisabled : Reason::kPrefillGraphsDisabled);
  // The costs of prefill sizes were measured with prefills, so a decode does not use them.
  Decision decision = pick(batch, {RunnerKind::kPrefill, prefill_sizes, /*padding=*/true,
                                   batch.decodes || batch.adapters ? nullptr : table.costs});
  const bool has_full = !batch.adapters && std::ranges::binary_search(table.full_sizes, decision.size);
  if (decision.runner == RunnerKind::kPrefill && batch.several_rows_each && has_full) {
    decision.form = GraphForm::kFull;
    decision.reason = Reason::kFullCostsLess;
  }
  return decision;
}

}  // namespace

Decision dispatch(const BatchShape& batch, const DispatchTable& table) {
  Decision decision = choose(batch, table);
  decision.adapters = batch.adapters;
  return decision;
}

std::int64_t split_tokens(std::int64_t tokens, const DispatchTable& table) {
  if (!table.graphs_enabled || !table.prefill_enabled || table.prefill_sizes.empty()) return tokens;
  if (tokens > table.prefill_sizes.back()) return split_above(tokens, table.prefill_sizes, table.costs);
  if (table.costs == nullptr) return tokens;
  return split_within(tokens, {.sizes = table.prefill_sizes, .waiting = table.waiting}, *table.costs);
}

std::int64_t filling_tokens(const DispatchTable& table) {
  if (table.costs == nullptr) return kBusyTokens;
  const auto token_ms = [&](std::int64_t size) -> std::optional<double> {
    const std::optional<double> ms = table.costs->ms(RunnerKind::kPrefill, size);
    return ms ? std::optional(*ms / static_cast<double>(size)) : std::nullopt;
  };
  double least = std::numeric_limits<double>::infinity();
  for (const std::int64_t size : table.prefill_sizes) least = std::min(least, token_ms(size).value_or(least));
  for (const std::int64_t size : table.prefill_sizes) {
    const std::optional<double> ms = token_ms(size);
    if (ms && *ms <= least * kNearlyLeast) return size;
  }
  return kBusyTokens;
}

std::optional<double> drafting_ms(std::int64_t rows, std::int64_t requests, const DispatchTable& table) {
  if (table.costs == nullptr) return std::nullopt;
  const auto ms = [&](const Decision& of) { return table.costs->ms(of.runner, of.size); };
  const auto decode_of = [&](std::int64_t tokens) {
    return dispatch({.tokens = tokens, .requests = requests, .decodes = true, .all_rows_wanted = true}, table);
  };
  const std::optional<double> decode = ms(decode_of(requests));
  const Decision decision = decode_of(rows);
  const std::optional<double> all = ms(decision);
  if (!decode || !all) return std::nullopt;
  if (decision.runner == RunnerKind::kDecode) return std::max(*decode, *all);
  const std::optional<double> least = prompts_ms(requests, table);
  return least ? std::optional(std::max(*all, *decode + *all - *least)) : std::nullopt;
}

std::optional<double> prompts_ms(std::int64_t rows, const DispatchTable& table) {
  if (table.costs == nullptr) return std::nullopt;
  const Decision decision = dispatch({.tokens = rows}, table);
  return table.costs->ms(decision.runner, decision.size);
}

}  // namespace tessera
