// Requests to the engine, and their events and results.
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
#include "tessera/engine/cache/retention_hint.h"
#include "tessera/engine/drafts/draft_stats.h"
#include "tessera/engine/stats/graph_use.h"
#include "tessera/model/config/embedding_config.h"
#include "tessera/ops/sampling/top_logprobs.h"
#include "tessera/runner/vision/tower_use.h"

namespace tessera {

class Grammar;
struct Patches;

using RequestId = StrongId<struct RequestIdTag, std::int64_t>;

// Says how the next token is chosen. Random numbers depend only on (seed, choice, position). The steps run in this
// order: repetition, frequency and presence penalties; logit bias; bad words; the mask of allowed tokens or of the
// grammar; temperature; top_k; top_p among the tokens that top_k leaves; min_p; the draw (ops/sampling/sample.h,
// ops/sampling/logit_edits.h).
struct SamplingParams {
  double temperature = 0;  // 0: greedy, the most probable token
  std::int64_t top_k = 0;  // only the k most probable tokens are kept; 0: all
  double top_p = 1;        // only the smallest set of tokens with at least this probability is kept; (0, 1]
  double min_p = 0;  // only tokens with at least this share of the most probable token's probability are kept; [0, 1]
  double repetition_penalty = 1;  // for tokens of prompt or output: logit / p if positive, else logit · p; (0, 10]
  double frequency_penalty = 0;   // multiplied by the token's count in the output, then subtracted; [-2, 2]
  double presence_penalty = 0;    // subtracted once for each token in the output; [-2, 2]
  std::vector<std::pair<TokenId, float>> logit_bias{};  // added to the token's logit; [-100, 100]
  // Forbidden sequences of one or more ids. If the output ends with all ids of a sequence except the last one, the last
  // one is not chosen.
  std::vector<std::vector<TokenId>> bad_words{};
  // The only tokens that may be chosen. If the list is empty, all tokens may be chosen. Not allowed together with a
  // grammar.
  std::vector<TokenId> allowed_tokens{};
  std::optional<std::int64_t> seed{};  // unset: the engine draws one and returns it
  std::int32_t choice = 0;             // index of this answer among the answers to one prompt

  // Returns whether logits are changed before a token is chosen.
  bool edits_logits() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0 || !logit_bias.empty() ||
           !bad_words.empty();
  }
};

// Returns kInvalidArgument for a value out of range. The error names the field, the value and what is accepted.
Status check_sampling(const SamplingParams& params);

// Conditions that end a text.
struct StopConditions {
  std::int64_t max_new_tokens = 128;  // 0: the prompt is computed and nothing is generated
  // Before the output has this many tokens, no token that ends a text is chosen, and stop strings are not searched for.
  std::int64_t min_new_tokens = 0;
  std::vector<std::string> texts{};  // stop strings; need a tokenizer
  std::vector<TokenId> ids{};        // stop ids in addition to the model's own end tokens
  bool ignore_eos = false;           // the model's end tokens do not end the text
  bool keep_matched = false;         // the stop string or stop id stays in the output
};

inline constexpr std::size_t kMaxStopTexts = 32;
inline constexpr std::size_t kMaxLogitBias = 1024;
inline constexpr std::size_t kMaxBadWords = 1024;
inline constexpr std::size_t kMaxBadWordTokens = 64;  // maximum number of tokens of one bad word
inline constexpr double kMaxTimeoutSeconds = 1e9;

// Limits the reasoning at the beginning of an output. Once the reasoning has `tokens` tokens, the next output tokens
// are `closing_ids`, and the model goes on after them.
struct ReasoningLimit {
  std::int64_t tokens = 0;             // 1 or more
  bool opened = false;                 // the prompt ends inside the reasoning
  bool repeats = false;                // the output may have several pieces of reasoning; the limit is of their sum
  std::string opening{};               // text that begins the reasoning
  std::string closing{};               // text that ends the reasoning
  std::vector<TokenId> closing_ids{};  // the ids of `closing`; at least one
};

// Log-probabilities of the model's own distribution, before penalties, masks and temperature.
struct LogprobOptions {
  std::optional<int> output{};    // number of alternatives for each output token, up to kMaxTopLogprobs; unset: none
  std::optional<int> prompt{};    // the same for prompt tokens; cached prompt tokens are then computed again
  std::int64_t prompt_start = 0;  // index of the first prompt token with log-probabilities; token 0 has none
};

struct TokenLogprob {
  TokenId id;
  float logprob = 0;
};

// The log-probabilities of one token and of its alternatives; `top` is in descending order.
struct TokenLogprobs {
  TokenLogprob token;
  std::vector<TokenLogprob> top{};
};

// An image within a prompt. Its tokens in the prompt have the id of the model's image placeholder.
struct PromptImage {
  std::int64_t first_token = 0;  // index of the image's first token in the prompt
  std::shared_ptr<const Patches> patches{};
};

// The priority of a probe, a request that checks whether the engine works. A probe is admitted regardless of
// max_queued_requests, ahead of all waiting requests.
inline constexpr std::int64_t kProbePriority = std::numeric_limits<std::int64_t>::max();

struct Request {
  std::vector<TokenId> prompt{};
  std::vector<PromptImage> images{};  // in the order of their tokens; for models with a vision tower
  // [prompt tokens × hidden size]: replaces the embeddings of `prompt`, whose ids are ignored. The prefix cache does
  // not keep such a prompt.
  std::vector<float> input_embeds{};
  SamplingParams sampling{};
  StopConditions stop{};
  LogprobOptions logprobs{};
  std::shared_ptr<const Grammar> grammar{};  // null: none
  std::string adapter{};                     // name of a loaded low-rank adapter; empty: none
  // If set, the completion has the last layer's hidden states after the final norm: one for each prompt token, then one
  // for each output token that a later forward reads.
  bool return_hidden_states = false;
  bool last_hidden_state_only = false;  // return only the last hidden state, from which the last token was chosen
  bool return_images = false;           // the completion has the images' embedding rows
  bool return_graph_info = false;       // the completion lists how the forwards ran
  bool skip_special_tokens = true;      // leave special tokens out of the text
  bool wants_text = true;               // events and completion have the text; ignored without a tokenizer
  // If set, the request generates nothing, and its completion has a row of logits for prompt token `score_from` and for
  // each later prompt token. A row of a classifier has one logit for each label. The last row classifies the whole
  // text.
  bool score = false;
  std::int64_t score_from = 0;  // below the number of prompt tokens
  // If set, the request generates nothing, and its completion has one vector pooled from the prompt's normed hidden
  // states.
  Pooling pooling = Pooling::kNone;
  std::int64_t priority = 0;  // higher first; preempts lower ones when room is short; see kProbePriority
  double timeout_s = 0;       // maximum number of seconds from submit() to the last token; 0: no limit
  RetentionHint retention{};  // only changes the order in which the prefix cache evicts texts
  // Indices of prompt tokens at which later prompts are likely to diverge from this one, in ascending order. A model
  // with recurrent states keeps its state near each of them (cut_prompt()). Other models ignore them.
  std::vector<std::int64_t> branch_tokens{};
  std::optional<ReasoningLimit> reasoning_limit{};

  // Returns whether the request may generate tokens; max_new_tokens gives their number.
  bool generates() const { return !score && pooling == Pooling::kNone; }
};

// Checks all fields of the request, except `sampling`, as far as this is possible without a model. Errors are like
// those of check_sampling().
Status check_request(const Request& request);

enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kCancelled, kTimeout, kError };
// Returns "stop" "length" "cancelled" "timeout" "error", or "" for kNone.
std::string_view finish_reason_name(FinishReason reason);

// The token or string at which a text ended with kStop.
struct StopMatch {
  std::optional<TokenId> id{};
  std::optional<std::string> text{};
};

// One request's progress in one step.
struct RequestEvent {
  RequestId request{};
  std::optional<TokenId> token{};  // the new token; a token that ends the text is included only if it is kept
  std::string text{};              // newly final text
  std::optional<TokenLogprobs> logprobs{};
  FinishReason finish = FinishReason::kNone;
  Status error{};  // set with kError and kTimeout
};

// The result of a request that has ended.
struct Completion {
  std::vector<TokenId> output_ids{};
  std::string text{};
  FinishReason finish = FinishReason::kNone;
  StopMatch matched{};
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // prompt tokens that were found in the prefix cache
  DraftTotals drafts{};            // the request's drafts in speculative decoding
  std::int64_t seed = 0;
  std::vector<TokenLogprobs> output_logprobs{};  // [output tokens]
  // [prompt tokens - prompt_start]. The prompt's very first token, if included, has logprob NaN and no top.
  std::vector<TokenLogprobs> prompt_logprobs{};
  std::vector<float> hidden_states{};  // [rows × hidden size]
  // Logits of a scored request, one row for each prompt token from `score_from` on. A row has one value for each entry
  // of the vocabulary, or for each label of a classifier.
  std::vector<float> logits{};
  // Set if return_images is set.
  // image_rows: [tokens × row values] for each image. The first `hidden size` values of a row are its embedding.
  // rope_positions: [3 × prompt tokens], for models with three-dimensional positions.
  std::vector<std::vector<float>> image_rows{};
  std::vector<std::int32_t> rope_positions{};
  std::vector<float> pooled{};         // [hidden size], as the model computes it, not normalised
  std::vector<GraphUse> graph_uses{};  // set if return_graph_info is set
  TowerCounts tower_uses{};            // set if return_graph_info is set: how the forwards ran that computed the images
  double queue_ms = 0;
  double time_to_first_token_ms = 0;
  double total_ms = 0;
};

}  // namespace tessera
