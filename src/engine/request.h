// What is asked of the engine, and what comes back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"

namespace tessera {

using RequestId = StrongId<struct RequestIdTag, std::int64_t>;

// How the next token is chosen. Random numbers depend on (seed, choice, position) alone.
struct SamplingParams {
  double temperature = 0;            // 0: the most probable token
  std::int64_t top_k = 0;            // keep the k most probable; 0: all
  double top_p = 1;                  // keep the smallest set of at least this probability; (0, 1]
  std::optional<std::int64_t> seed;  // none: drawn by the engine and returned
};

// Error naming field, value and what is accepted.
Status check_sampling(const SamplingParams& params);

struct Request {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::int64_t max_new_tokens = 128;
  bool ignore_eos = false;
  // Logits of every prompt token are kept and returned with the request's end; nothing is generated.
  bool score = false;
};

enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kCancelled, kError };
std::string_view finish_reason_name(FinishReason reason);  // "stop" "length" "cancelled" "error"; "" for none

// One request's progress in one step.
struct RequestEvent {
  RequestId request;
  std::optional<TokenId> token;  // the new token; the one that ends a text is not handed out
  FinishReason finish = FinishReason::kNone;
  Status error;  // with kError
};

// A request's end.
struct Completion {
  std::vector<TokenId> output_ids;
  FinishReason finish = FinishReason::kNone;
  std::int64_t prompt_tokens = 0;
  std::int64_t seed = 0;
  std::vector<float> logits;  // [prompt tokens × vocab] of a scored request
  double time_to_first_token_ms = 0;
  double total_ms = 0;
};

}  // namespace tessera
