// Decides which of a model's runners, for example prefill or decode (runner_spec.h), takes a batch, at which size, and
// why. Dispatch is a pure function of a few properties of the batch (BatchShape) and of a table with the captured sizes
// and their costs (DispatchTable). Every decision carries a reason from a fixed list.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/dispatch/costs.h"

namespace tessera {

std::string_view runner_kind_name(RunnerKind kind);  // "eager" "prefill" "decode"

enum class Reason : std::uint8_t {
  kExactSize,              // replay: a graph of exactly this size
  kPaddedToSize,           // replay: padded to the next captured size
  kGraphsDisabled,         // eager: graphs are switched off
  kPrefillGraphsDisabled,  // eager: prefill graphs are switched off by an option or a rule
  kDecodeGraphsDisabled,   // eager: a decode batch, and both decode and prefill graphs are switched off
  kAboveLargestSize,       // eager: more tokens than the largest captured size
  kPaddingDisabled,        // eager: no graph of exactly this size, and padding is switched off
  kNothingCaptured,        // eager: no size was captured
  kPaddingCostsMore,       // eager: the padded replay was measured to cost more
  kRowsNotOneEach,         // eager: a decode batch wants only some rows' logits, but prefill graphs are off
  kEagerRequested,         // eager: the caller asked for it
  kReplayFailed,           // eager: the graph's launch failed, and the forward was run again without it
  kFullCostsLess,          // replay: one graph that includes attention, measured to be faster than the pieces
};
inline constexpr int kNumReasons = 13;
std::string_view reason_text(Reason reason);  // "padded to the next captured size"
std::string_view reason_name(Reason reason);  // "padded_to_size", for counters
// Returns whether a graph was replayed.
bool is_replay(Reason reason);
// Returns whether the forward ran eagerly because no captured graph could run it, or because the graph's launch failed.
// An eager run is no fallback if its reason is disabled graphs (k…GraphsDisabled), the caller's request or measured
// costs. The first fallback of each reason is logged as a warning.
bool is_fallback(Reason reason);

// The available graphs and their costs. Sizes are ascending. They include pending sizes that will be captured when they
// are first used.
struct DispatchTable {
  bool graphs_enabled = true;
  bool prefill_enabled = true;
  bool decode_enabled = true;
  bool decode_padding = true;
  std::vector<std::int64_t> prefill_sizes;  // tokens
  std::vector<std::int64_t> decode_sizes;   // rows, which are requests and their drafts
  std::vector<std::int64_t> full_sizes{};   // prefill sizes that also have a full graph, measured to be faster
  std::vector<std::int64_t> waiting{};      // pending prefill sizes that are captured in idle moments
  std::vector<std::int64_t> adapter_prefill_sizes{};  // sizes of the graphs with adapters
  std::vector<std::int64_t> adapter_decode_sizes{};
  const CostTable* costs = nullptr;  // null: costs are not considered
};

struct BatchShape {
  std::int64_t tokens = 0;
  std::int64_t requests = 0;
  bool decodes = false;            // every request adds one token, and may also add drafts
  bool all_rows_wanted = false;    // the logits of all rows are wanted, in order, which decode graphs require
  bool several_rows_each = false;  // every request adds two tokens or more, and none has drafts
  bool force_eager = false;
  bool adapters = false;  // some row has a low-rank adapter
};
// Returns the properties of a batch on which dispatch depends. Dispatch reads nothing else of the batch.
BatchShape shape_of(const ForwardBatch& batch, bool force_eager = false);

// How a prefill is replayed: as graphs of pieces with attention between them, or as one graph that includes attention.
enum class GraphForm : std::uint8_t { kPieces, kFull };

struct Decision {
  RunnerKind runner = RunnerKind::kEager;
  std::int64_t size = 0;     // the captured size, or for eager runs the number of tokens
  std::int64_t padding = 0;  // rows of padding
  Reason reason = Reason::kGraphsDisabled;
  GraphForm form = GraphForm::kPieces;
  bool adapters = false;  // the forward runs on the runners with adapters (adapters/adapted_graphs.h)
};

// Decides how one batch runs. A batch in which every request decodes, with drafts or without, goes to the decode
// runner. A batch with a prompt goes to the prefill runner. A decode batch also goes there in three cases: decode has
// no graphs, the batch has more rows than the largest decode graph, or it does not want the logits of all rows. A
// prefill in which every request has several rows uses the full graph of its size if there is one. A batch with
// adapters uses the sizes of the graphs with adapters. The costs of these graphs are not measured.
Decision dispatch(const BatchShape& batch, const DispatchTable& table);

// Returns how many of `tokens` prefill tokens to compute in the next forward, from 1 to `tokens`. The rest is left for
// later forwards. Sizes in `waiting` do not count as captured. Allocates nothing.
//   - Up to the largest size: returns `tokens`, or a captured size if two forwards are measured to be cheaper than one.
//   - Above the largest size: returns the largest size, so that a graph is replayed. Returns `tokens` instead in two
//     cases: if one eager forward is measured to be cheaper, or if nothing was measured and the largest size is below
//     512. Replays of so few tokens would spend most of their time reading the weights.
std::int64_t split_tokens(std::int64_t tokens, const DispatchTable& table);

// Returns a number of tokens above which a prefill's time is about proportional to its number of tokens. The result is
// the smallest captured size whose time per token is at most a quarter above the minimum. Returns 512 if nothing was
// measured. Allocates nothing.
std::int64_t filling_tokens(const DispatchTable& table);

// Returns the time in milliseconds of a forward in which `requests` decoding requests have `rows` rows together, drafts
// included. If `rows` exceeds the largest decode graph, the forward runs as a prefill. Prefills were measured with one
// request, and several requests cost more. Let decode(n) and prefill(n) be the measured times of a decode and of a
// prefill of n rows. The estimate for this case is decode(requests) + prefill(rows) - prefill(requests), or
// prefill(rows) if that is more. Returns nothing if a cost was not measured. Allocates nothing.
std::optional<double> drafting_ms(std::int64_t rows, std::int64_t requests, const DispatchTable& table);

// Returns the time in milliseconds of a forward with prompts. `rows` counts the rows of prompts and decodes together.
// Returns nothing if the cost was not measured. Allocates nothing.
std::optional<double> prompts_ms(std::int64_t rows, const DispatchTable& table);

}  // namespace tessera
