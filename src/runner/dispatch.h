// Dispatch (A2, A3): which runner takes a batch, at which size, and why. One pure function of the
// batch's shape and of what was captured; every decision carries one of a closed list of reasons.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera {

enum class RunnerKind : std::uint8_t { kEager, kPrefill, kDecode };
std::string_view runner_kind_name(RunnerKind kind);  // "eager" "prefill" "decode"

enum class Reason : std::uint8_t {
  kExactSize,              // replay: a graph of just this size
  kPaddedToSize,           // replay: padded to the next captured size
  kGraphsDisabled,         // eager: --disable-cuda-graph or --cuda-graph-mode off
  kPrefillGraphsDisabled,  // eager: --disable-piecewise-cuda-graph or a rule
  kDecodeGraphsDisabled,   // eager: decode is not graphed in this mode
  kAboveLargestSize,       // eager: more tokens or requests than the largest captured size
  kPaddingDisabled,        // eager: no graph of just this size, and --disable-cuda-graph-padding
  kNothingCaptured,        // eager: no size was captured
  kPaddingCostsMore,       // eager: so large a prefill that the padding costs more than the replay saves
  kRowsNotOneEach,         // eager: a decode batch whose logits are not wanted row by row
  kEagerRequested,         // eager: the caller asked for it
};
inline constexpr int kNumReasons = 11;
std::string_view reason_text(Reason reason);  // "padded to the next captured size"
std::string_view reason_name(Reason reason);  // "padded_to_size", for counters

// What graphs exist. Sizes ascending.
struct DispatchTable {
  bool graphs_enabled = true;
  bool prefill_enabled = true;
  bool decode_enabled = true;
  bool decode_padding = true;
  std::vector<std::int64_t> prefill_sizes;  // tokens
  std::vector<std::int64_t> decode_sizes;   // requests
};

struct BatchShape {
  std::int64_t tokens = 0;
  std::int64_t requests = 0;
  // Every request adds one token and wants its logits: what decode graphs compute.
  bool one_row_each = false;
  bool force_eager = false;
};

struct Decision {
  RunnerKind runner = RunnerKind::kEager;
  std::int64_t size = 0;     // captured size; for eager the tokens themselves
  std::int64_t padding = 0;  // rows computed for nothing
  Reason reason = Reason::kGraphsDisabled;
};

// Above so many tokens a prefill keeps a GPU busy for longer than the host needs to launch it: a replay saves 0 to 3 %
// of Qwen3-0.6B's and Llama-3-8B's forwards on an H200 (docs/benchmarks.md), and padding beyond that costs more.
inline constexpr std::int64_t kBusyTokens = 2048;
inline constexpr double kMostPaddingOfBusy = 0.02;  // of the real tokens

// Pure decode goes to the decode runner, everything else, mixed batches too, to the prefill runner
// (F3, F6); where decode is not graphed, a decode batch is a prefill of one token each.
Decision dispatch(const BatchShape& batch, const DispatchTable& table);

}  // namespace tessera
