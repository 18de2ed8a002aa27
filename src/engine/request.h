// Requests to the engine, and what it returns.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/engine/report/graph_use.h"
#include "tessera/model/config/embedding_config.h"
#include "tessera/ops/sampling/top_logprobs.h"
#include "tessera/runner/vision/tower_use.h"

namespace tessera {

class Grammar;
struct Patches;

using RequestId = StrongId<struct RequestIdTag, std::int64_t>;

// How the next token is chosen. Random numbers depend on (seed, choice, position) alone.
// In this order: repetition, frequency and presence penalties, logit bias, bad words, the mask of allowed tokens or of
// the grammar; temperature; top_k; top_p of what is left; min_p; the draw (ops/sampling/sample.h,
// ops/sampling/logit_edits.h).
struct SamplingParams {
  double temperature = 0;         // 0: the most probable token
  std::int64_t top_k = 0;         // keep the k most probable; 0: all
  double top_p = 1;               // keep the smallest set of at least this probability; (0, 1]
  double min_p = 0;               // keep what is at least so probable relative to the most probable; [0, 1]
  double repetition_penalty = 1;  // of tokens of prompt and output: logit / p or logit · p; (0, 10]
  double frequency_penalty = 0;   // times the count in the output, subtracted; [-2, 2]
  double presence_penalty = 0;    // subtracted once for a token in the output; [-2, 2]
  std::vector<std::pair<TokenId, float>> logit_bias{};  // added; [-100, 100]
  // Sequences of ids, none empty: the last one is not chosen where the output ends with those before it.
  std::vector<std::vector<TokenId>> bad_words{};
  // No other is chosen; empty: all may be. Not together with a grammar.
  std::vector<TokenId> allowed_tokens{};
  std::optional<std::int64_t> seed{};  // none: drawn by the engine and returned
  std::int32_t choice = 0;             // which of several answers to one prompt this is

  // Whether logits are changed before a token is chosen.
  bool edits_logits() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0 || !logit_bias.empty() ||
           !bad_words.empty();
  }
};

// Error naming field, value and what is accepted.
Status check_sampling(const SamplingParams& params);

// When a text ends.
struct StopConditions {
  std::int64_t max_new_tokens = 128;  // 0: the prompt is computed and nothing generated
  std::int64_t min_new_tokens = 0;    // before, no token that ends a text is chosen, and no stop string looked for
  std::vector<std::string> texts{};   // stop strings; need a tokenizer
  std::vector<TokenId> ids{};         // beside the model's own end tokens
  bool ignore_eos = false;            // the model's end tokens are like others
  bool keep_matched = false;          // the stop string or stop id stays in the output
};

inline constexpr std::size_t kMaxStopTexts = 32;
inline constexpr std::size_t kMaxLogitBias = 1024;
inline constexpr std::size_t kMaxBadWords = 1024;
inline constexpr std::size_t kMaxBadWordTokens = 64;  // of one
inline constexpr double kMaxTimeoutSeconds = 1e9;

// Log-probabilities of the model's own distribution: before penalties, masks and temperature.
struct LogprobOptions {
  std::optional<int> output{};    // of each output token and its n most probable alternatives; 0 to kMaxTopLogprobs
  std::optional<int> prompt{};    // the same of prompt tokens, which are then computed even where they are cached
  std::int64_t prompt_start = 0;  // first prompt token that wants them; the very first token has none
};

struct TokenLogprob {
  TokenId id;
  float logprob = 0;
};

// One token's; `top` in descending order.
struct TokenLogprobs {
  TokenLogprob token;
  std::vector<TokenLogprob> top{};
};

// An image within a prompt. Its tokens' ids there are the model's placeholder for images.
struct PromptImage {
  std::int64_t first_token = 0;  // of patches->tokens() in the prompt
  std::shared_ptr<const Patches> patches{};
};

// Of a request that asks whether the engine works. It is admitted whatever max_queued_requests says, ahead of all that
// wait.
inline constexpr std::int64_t kProbePriority = std::numeric_limits<std::int64_t>::max();

struct Request {
  std::vector<TokenId> prompt{};
  std::vector<PromptImage> images{};  // in the order of their tokens; for models with a vision tower
  // [prompt tokens × hidden size], instead of the embeddings of `prompt`, whose ids are then not looked at. Not cached.
  std::vector<float> input_embeds{};
  SamplingParams sampling{};
  StopConditions stop{};
  LogprobOptions logprobs{};
  std::shared_ptr<const Grammar> grammar{};  // null: none
  bool return_hidden_states = false;         // of the last layer, normed: prompt tokens, then each token fed back
  bool last_hidden_state_only = false;       // of these the last one alone, by which the last token was chosen
  bool return_images = false;                // the completion has what the images became
  bool return_graph_info = false;            // the completion lists how the forwards ran
  bool skip_special_tokens = true;           // in the text
  bool wants_text = true;                    // events and completion have it; no matter without a tokenizer
  // Logits of the prompt's tokens from `score_from` on are kept and returned with the request's end; nothing is
  // generated. Of a classifier they are those of its labels, and the last token's are the text's.
  bool score = false;
  std::int64_t score_from = 0;  // below the number of prompt tokens
  // One vector of the prompt's normed hidden states is returned with the request's end; nothing is generated.
  Pooling pooling = Pooling::kNone;
  std::int64_t priority = 0;  // higher first; preempts lower ones where room is short; see kProbePriority
  double timeout_s = 0;       // from submit to the last token; 0: none

  // Whether it may ask for tokens; max_new_tokens says how many.
  bool generates() const { return !score && pooling == Pooling::kNone; }
};

// The same for all other fields that can be checked without the model.
Status check_request(const Request& request);

enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kCancelled, kTimeout, kError };
// "stop" "length" "cancelled" "timeout" "error"; "" for none
std::string_view finish_reason_name(FinishReason reason);

// The token or string that ended a text with kStop.
struct StopMatch {
  std::optional<TokenId> id{};
  std::optional<std::string> text{};
};

// One request's progress in one step.
struct RequestEvent {
  RequestId request{};
  std::optional<TokenId> token{};  // the new token; one that ends a text is handed out only if it is kept
  std::string text{};              // that is final
  std::optional<TokenLogprobs> logprobs{};
  FinishReason finish = FinishReason::kNone;
  Status error{};  // with kError and kTimeout
};

// The result of a request that has ended.
struct Completion {
  std::vector<TokenId> output_ids{};
  std::string text{};
  FinishReason finish = FinishReason::kNone;
  StopMatch matched{};
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  std::int64_t seed = 0;
  std::vector<TokenLogprobs> output_logprobs{};  // [output tokens]
  // [prompt tokens - prompt_start]; where it begins with the very first token, that one has logprob NaN and no top.
  std::vector<TokenLogprobs> prompt_logprobs{};
  std::vector<float> hidden_states{};  // [rows × hidden size]
  std::vector<float> logits{};         // [prompt tokens - score_from × vocab, or labels] of a scored request
  // Where return_images is set: of each image [tokens × row values], the first `hidden size` of a row being its
  // embedding, and positions [3 × prompt tokens] of models that place images in three directions.
  std::vector<std::vector<float>> image_rows{};
  std::vector<std::int32_t> rope_positions{};
  std::vector<float> pooled{};         // [hidden size], as the model has it: not normalised
  std::vector<GraphUse> graph_uses{};  // where return_graph_info is set
  TowerCounts tower_uses{};            // the same, of the forwards that computed the request's images
  double queue_ms = 0;
  double time_to_first_token_ms = 0;
  double total_ms = 0;
};

}  // namespace tessera
