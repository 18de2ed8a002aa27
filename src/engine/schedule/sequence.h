// A sequence: a request while it is in the engine, with its tokens and the memory that it holds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/adapters/served_adapter.h"
#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/cache/prefix_tokens.h"
#include "tessera/engine/drafts/drafter.h"
#include "tessera/engine/grammar/grammar.h"
#include "tessera/engine/images/image_rows.h"
#include "tessera/engine/request.h"
#include "tessera/engine/schedule/output_text.h"
#include "tessera/engine/schedule/prefix_waits.h"
#include "tessera/engine/schedule/reasoning_budget.h"
#include "tessera/engine/schedule/rope_positions.h"
#include "tessera/engine/schedule/token_edits.h"

namespace tessera {

struct Sequence {
  using Clock = std::chrono::steady_clock;

  RequestId id;
  Request request;
  std::vector<TokenId> tokens;  // the prompt, then the output
  std::int64_t pending = 0;     // number of tokens at the end that forwards in flight have yet to sample
  // The number of tokens with keys and values in the cache, including those that forwards in flight compute.
  std::int64_t computed = 0;
  // The number of the last forward's drafts that were accepted. These drafts are the last of the computed tokens.
  // Recurrent states do not include them yet: the next forward first advances the states over them. The number is 0 for
  // models without states.
  std::int64_t accepted_drafts = 0;
  SequenceCache cache;  // the sequence's pages and slots in all cache groups
  // The first device row of the prompt's given embeddings; -1: none is held. Rows are held from the admission until the
  // prompt is computed.
  std::int64_t first_embedding = -1;
  std::vector<ImageSpan> images;  // images of the request, in the order of their tokens
  // image_rows[i] holds the rows of images[i], from the first forward that needs them to the last one. null means that
  // none are held.
  std::vector<ImageRows::Image*> image_rows;
  std::optional<RopePositions> rope;       // none: positions are indices in the text
  std::shared_ptr<ServedAdapter> adapter;  // null: none
  std::int64_t passed = 0;  // number of sequences with adapters that were admitted while this one waited for a slot
  std::int64_t seed = 0;
  std::int32_t last_row = -1;  // index of the newest token in last_ids, the device's newest sampled ids; -1: not there
  std::int64_t order = 0;      // position in the order of arrival
  std::int64_t admission = 0;  // number of the sequence's latest admission, from 1
  PrefixStanding prefix;       // the sequence's state for PrefixWaits
  std::int64_t place = -1;     // index among the requests of the last batch with this sequence; -1: none

  std::optional<TokenEdits> edits;  // none: the logits are not edited
  std::optional<GrammarMatcher> matcher;
  // One bit for each token, as in GrammarMatcher's masks. A set bit allows the token. If the vector is empty, all
  // tokens are allowed.
  std::vector<std::uint32_t> allowed;
  // Whether the sequence makes no drafts only because of trials of other requests (DraftTrials): it was refused drafts,
  // or all requests stopped drafting.
  bool awaits_trials = false;
  std::optional<ReasoningBudget> reasoning;  // none: the reasoning is not limited
  std::optional<OutputText> text;            // none: the text is not wanted
  std::optional<Drafter> drafter;            // none: the sequence makes no drafts
  std::vector<TokenId> drafts;               // drafts that the next forward computes after the last token
  // If the sequence still has the page table with the number `draft_keys_table`, the draft model has the keys of at
  // least the first `draft_keys` tokens (DraftKeys).
  std::int64_t draft_keys = 0;
  PageTableNumber draft_keys_table{};

  // The result that the request gets when the sequence ends. Rows of the prompt are delivered once, even if they are
  // computed again.
  Completion result;
  std::int64_t rows_delivered = 0;    // number of prompt tokens whose log-probabilities or logits were delivered
  std::int64_t hidden_delivered = 0;  // number of tokens whose hidden states were delivered or pooled
  std::vector<double> pooled_sum;     // [hidden size]: sum of the pooled hidden states, if the mean is wanted
  bool admitted_before = false;
  Clock::time_point arrived;
  std::optional<Clock::time_point> deadline;

  std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(request.prompt.size()); }
  // Returns the number of output tokens, pending ones included.
  std::int64_t generated() const { return static_cast<std::int64_t>(tokens.size()) - prompt_tokens(); }
  std::int64_t uncomputed() const { return static_cast<std::int64_t>(tokens.size()) - computed; }
  // Returns the adapter's number, or 0 without one.
  std::int64_t adapter_number() const { return adapter == nullptr ? 0 : adapter->number; }
  // Returns the first `count` tokens as the prefix cache sees them. The result borrows from the sequence.
  PrefixTokens first_tokens(std::int64_t count) const;
  double elapsed_ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - arrived).count(); }
  // Returns whether the next forward computes one token after the prompt.
  bool decodes() const { return generated() > 0 && uncomputed() == 1; }
  // Returns whether no further forward needs to be scheduled: every token of the output is sampled, or a forward in
  // flight samples it. If the request generates nothing, returns whether the prompt is computed.
  // If `more` is above 0, counts `more` further tokens as if the output already had them.
  bool is_done(std::int64_t more = 0) const {
    return generated() + more >= request.stop.max_new_tokens && (generated() > 0 || uncomputed() == 0);
  }
  // Returns whether the choice of the next token needs the earlier tokens on the host.
  bool needs_text() const { return matcher.has_value() || (edits && edits->follow_text()); }
  // Returns whether edits and allowed tokens permit `token` as output token `number` (from 0).
  bool may_choose(TokenId token, std::int64_t number) const;
  // Returns whether the host must read the sequence's results before more is scheduled, for a reason other than drafts.
  bool reads_results_at_once() const { return request.score || wants_hidden() || needs_text(); }
  // Returns whether the host must read the sequence's results before more is scheduled.
  bool is_read_at_once() const { return reads_results_at_once() || drafter.has_value(); }
  // Returns whether the sequence takes part in trials of drafts (DraftTrials), and its drafts show whether drafting
  // pays.
  bool tries_drafts() const { return drafter && drafter->is_tried() && drafter->has_keys(); }
  bool wants_hidden() const { return request.return_hidden_states || request.pooling != Pooling::kNone; }
  // Returns whether the hidden states of all tokens are wanted, not only those of one token.
  bool wants_all_hidden() const { return request.return_hidden_states || request.pooling == Pooling::kMean; }
  // Returns whether other sequences with the same ids and images may use this sequence's keys and values.
  bool is_cacheable() const { return request.input_embeds.empty(); }
  // Returns the index of the first token whose row is wanted. This token is computed even if it is cached.
  std::int64_t first_wanted() const;
};

// Returns the first prompt row with wanted outputs. Row p - 1 gives the log-probability of token p. All rows are wanted
// if the request wants image rows, all hidden states or their mean. If the request pools the first hidden state, row 0
// is wanted.
inline std::int64_t Sequence::first_wanted() const {
  if (wants_all_hidden() || request.pooling == Pooling::kFirst || request.return_images) return 0;
  if (request.score) return request.score_from;
  if (request.logprobs.prompt) return std::max<std::int64_t>(request.logprobs.prompt_start - 1, 0);
  return static_cast<std::int64_t>(tokens.size());
}

inline PrefixTokens Sequence::first_tokens(std::int64_t count) const {
  PrefixTokens first{std::span(tokens).first(static_cast<std::size_t>(count)), images};
  if (adapter != nullptr) {
    first.adapter = adapter->number;
    first.adapter_name = adapter->name;
    first.adapter_loads = adapter->earlier_loads;
  }
  return first;
}

inline bool Sequence::may_choose(TokenId token, std::int64_t number) const {
  if (edits && edits->forbids(token, number)) return false;
  const auto bit = static_cast<std::uint32_t>(token.value());
  return allowed.empty() || (allowed[bit / 32] >> (bit % 32) & 1U) != 0;
}

}  // namespace tessera
