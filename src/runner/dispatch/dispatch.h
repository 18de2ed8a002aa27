// Dispatch: which runner takes a batch, at which size, and why. One pure function of the
// batch's shape and of what was captured; every decision carries one of a closed list of reasons.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/dispatch/costs.h"

namespace tessera {

std::string_view runner_kind_name(RunnerKind kind);  // "eager" "prefill" "decode"

enum class Reason : std::uint8_t {
  kExactSize,              // replay: a graph of just this size
  kPaddedToSize,           // replay: padded to the next captured size
  kGraphsDisabled,         // eager: graphs are switched off
  kPrefillGraphsDisabled,  // eager: prefill graphs are switched off, or a rule does
  kDecodeGraphsDisabled,   // eager: decode is not graphed in this mode
  kAboveLargestSize,       // eager: more tokens or requests than the largest captured size
  kPaddingDisabled,        // eager: no graph of just this size, and padding is switched off
  kNothingCaptured,        // eager: no size was captured
  kPaddingCostsMore,       // eager: measured to be cheaper than the padded replay
  kRowsNotOneEach,         // eager: a decode batch whose logits are not wanted row by row
  kEagerRequested,         // eager: the caller asked for it
  kReplayFailed,           // eager: the graph's launch failed, and the forward was run again without it
  kFullCostsLess,          // replay: one graph with attention inside, measured to be faster than pieces
};
inline constexpr int kNumReasons = 13;
std::string_view reason_text(Reason reason);  // "padded to the next captured size"
std::string_view reason_name(Reason reason);  // "padded_to_size", for counters
// Whether a graph was replayed.
bool is_replay(Reason reason);
// Whether the forward ran eagerly although graphs were on and nothing spoke for eager: worth a warning.
bool is_fallback(Reason reason);

// What graphs there are, and what they cost. Sizes ascending; one that is still to be captured is captured on its first
// use.
struct DispatchTable {
  bool graphs_enabled = true;
  bool prefill_enabled = true;
  bool decode_enabled = true;
  bool decode_padding = true;
  std::int64_t decode_query_length = 1;     // tokens that each request of a decode graph adds
  std::vector<std::int64_t> prefill_sizes;  // tokens
  std::vector<std::int64_t> decode_sizes;   // requests
  std::vector<std::int64_t> full_sizes{};   // prefill sizes that have a full graph too, which is faster
  std::vector<std::int64_t> waiting{};      // prefill sizes that idle moments will capture
  const CostTable* costs = nullptr;         // null: not to be looked at
};

struct BatchShape {
  std::int64_t tokens = 0;
  std::int64_t requests = 0;
  // Every request adds equally many tokens and wants the logits of all: what decode graphs compute.
  bool all_rows_wanted = false;
  bool several_rows_each = false;  // every request adds two tokens or more
  bool force_eager = false;
};
// What dispatch sees of a batch.
BatchShape shape_of(const ForwardBatch& batch, bool force_eager = false);

// Of a replayed prefill: graphs of pieces with attention between them, or one with attention inside.
enum class GraphForm : std::uint8_t { kPieces, kFull };

struct Decision {
  RunnerKind runner = RunnerKind::kEager;
  std::int64_t size = 0;     // captured size; for eager the tokens themselves
  std::int64_t padding = 0;  // rows computed for nothing
  Reason reason = Reason::kGraphsDisabled;
  GraphForm form = GraphForm::kPieces;
};

// Pure decode goes to the decode runner, everything else, mixed batches too, to the prefill runner.
// Where decode is not graphed, a decode batch is a prefill of one token each. A prefill whose requests have several
// rows each takes the full graph of its size where there is one.
Decision dispatch(const BatchShape& batch, const DispatchTable& table);

// How many of `tokens` prefill tokens to compute in the next forward: 1 … tokens. All, unless two replays are measured
// to be cheaper than the padded one: then a captured size, and the rest in the next forward. Sizes that wait are not
// counted among those that can be replayed. More than the largest size holds are cut to it, so that they are replayed,
// unless eager at once is measured to be cheaper or, where nothing was measured, the largest size is so small that the
// parts would take long. Allocates nothing.
std::int64_t split_tokens(std::int64_t tokens, const DispatchTable& table);

// From how many tokens on a prefill's time is in proportion to them: the first captured size whose time for a token is
// within a quarter of the least. 512 where nothing was measured. Allocates nothing.
std::int64_t filling_tokens(const DispatchTable& table);

}  // namespace tessera
