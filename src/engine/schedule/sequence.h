// A request while it is in the engine.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/cache/prefix_tokens.h"
#include "tessera/engine/cache/prefix_waits.h"
#include "tessera/engine/grammar/grammar.h"
#include "tessera/engine/images/image_rows.h"
#include "tessera/engine/output_text.h"
#include "tessera/engine/request.h"
#include "tessera/engine/schedule/rope_positions.h"
#include "tessera/engine/schedule/token_edits.h"

namespace tessera {

struct Sequence {
  using Clock = std::chrono::steady_clock;

  RequestId id;
  Request request;
  std::vector<TokenId> tokens;  // prompt and output
  std::int64_t pending = 0;     // number of last tokens that forwards in flight have yet to sample
  std::int64_t computed = 0;    // tokens whose keys and values are in the cache, or will be after those forwards
  SequenceCache cache;          // what it holds of every cache group
  // Of the rows of its prompt's embeddings on the device, which it holds from its admission until its prompt is
  // computed; -1: it holds none.
  std::int64_t first_embedding = -1;
  std::vector<ImageSpan> images;  // the request's, in order
  // [images], each from the first forward that needs it to the last; null: it holds none.
  std::vector<ImageRows::Image*> image_rows;
  std::optional<RopePositions> rope;  // none: those of its tokens are their places
  std::int64_t seed = 0;
  std::int32_t last_row = -1;  // row of the last step that sampled its newest token; -1: none
  std::int64_t order = 0;      // of arrival
  std::int64_t admission = 0;  // number of its last one, from 1
  PrefixStanding prefix;       // among those whose prompts are being computed
  std::int64_t place = -1;     // among the requests of the last batch it was in

  std::optional<TokenEdits> edits;  // none: its logits stay as they are
  std::optional<GrammarMatcher> matcher;
  // One bit a token, as in GrammarMatcher's masks: it may be chosen. Empty: all may.
  std::vector<std::uint32_t> allowed;
  std::optional<OutputText> text;  // none: nobody wants it

  // Returned at its end. Rows of the prompt are delivered once, however often they are computed.
  Completion result;
  std::int64_t rows_delivered = 0;    // of prompt logprobs or logits, in tokens of the prompt
  std::int64_t hidden_delivered = 0;  // tokens whose hidden states are delivered, or pooled
  std::vector<double> pooled_sum;     // [hidden size] of those tokens, where the mean is wanted
  bool admitted_before = false;
  Clock::time_point arrived;
  std::optional<Clock::time_point> deadline;

  std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(request.prompt.size()); }
  // Pending ones included.
  std::int64_t generated() const { return static_cast<std::int64_t>(tokens.size()) - prompt_tokens(); }
  std::int64_t uncomputed() const { return static_cast<std::int64_t>(tokens.size()) - computed; }
  double elapsed_ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - arrived).count(); }
  // Its next forward computes one token after the prompt.
  bool decodes() const { return generated() > 0 && uncomputed() == 1; }
  // Its last token is sampled, or will be; or there is none to sample and its prompt is computed.
  bool is_done() const { return generated() >= request.stop.max_new_tokens && (generated() > 0 || uncomputed() == 0); }
  // The next token can only be chosen once the tokens before are on the host.
  bool needs_text() const { return matcher.has_value() || (edits && edits->follow_text()); }
  // Whether `token` may be its output token `number` (from 0), as far as edits and allowed tokens say.
  bool may_choose(TokenId token, std::int64_t number) const;
  // Its forwards must be read before more is scheduled.
  bool is_read_at_once() const { return request.score || wants_hidden() || needs_text(); }
  bool wants_hidden() const { return request.return_hidden_states || request.pooling != Pooling::kNone; }
  // Hidden states of all its tokens, and not of one.
  bool wants_all_hidden() const { return request.return_hidden_states || request.pooling == Pooling::kMean; }
  // Whether tokens with the same ids, and the same images, have the same keys and values as in other sequences.
  bool is_cacheable() const { return request.input_embeds.empty(); }
  // Tokens from here on are computed even where they are cached: their rows are wanted.
  std::int64_t first_wanted() const;
};

// First row of the prompt whose outputs were asked for: log-probabilities of token p come from row p - 1, hidden states
// from all rows, or from the one that is the pooled vector.
inline std::int64_t Sequence::first_wanted() const {
  if (wants_all_hidden() || request.pooling == Pooling::kFirst || request.return_images) return 0;
  if (request.score) return request.score_from;
  if (request.logprobs.prompt) return std::max<std::int64_t>(request.logprobs.prompt_start - 1, 0);
  return static_cast<std::int64_t>(tokens.size());
}

inline bool Sequence::may_choose(TokenId token, std::int64_t number) const {
  if (edits && edits->forbids(token, number)) return false;
  const auto bit = static_cast<std::uint32_t>(token.value());
  return allowed.empty() || (allowed[bit / 32] >> (bit % 32) & 1U) != 0;
}

}  // namespace tessera
