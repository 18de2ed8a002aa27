// Guesses the next tokens of one request. These guesses are the request's drafts. The model then computes the last
// token and all drafts in one forward. The drafts that the model would have chosen too are kept (StepLoop).
//
// There are two sources of drafts. One is the request's own text: if the text's last tokens occurred earlier, the
// drafts are the tokens after that occurrence. Drafts from the text need no weights. The other source is the model's
// next-token layer (LayerDrafts). If the model has one, it makes the drafts, unless the text repeats itself at length.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/drafts/draft_counts.h"
#include "tessera/engine/drafts/draft_pace.h"
#include "tessera/engine/drafts/draft_trials.h"
#include "tessera/engine/drafts/suffix_automaton.h"

namespace tessera {

class Drafter {
 public:
  // Makes up to `most_of_text` drafts from the text, and up to `most_of_layer` by a next-token layer or draft model. A
  // limit of 0 means that there is no such source. If `trials` is given, trials->begin() has returned true for this
  // request, and the destructor calls trials->end().
  explicit Drafter(std::int64_t most_of_text, std::int64_t most_of_layer = 0,
                   std::shared_ptr<DraftTrials> trials = nullptr);
  ~Drafter();
  Drafter(const Drafter&) = delete;
  Drafter& operator=(const Drafter&) = delete;

  // Reads up to `most` of the tokens that it has not read yet, and returns how many it read. `tokens` is the request's
  // text so far, which only grows from call to call.
  std::int64_t read(std::span<const TokenId> tokens, std::int64_t most);
  // Returns what can be drafted after `tokens`, and from which source. Nothing is drafted from the text before all
  // tokens are read. Call it once for each decode, before propose().
  DraftOffer offer(std::span<const TokenId> tokens);
  // Replaces `drafts` by the first `count` drafts of the last offer. A layer's drafts are 0 until
  // LayerDrafts::complete().
  void propose(std::span<const TokenId> tokens, std::int64_t count, std::vector<TokenId>& drafts) const;
  // Records how many of the drafts of the last step were kept.
  void judge(std::int64_t drafted, std::int64_t kept);
  // Records a step in which no request drafted. Steps in which a draft model has yet to read earlier tokens of the
  // request do not count.
  void rest() {
    if (!is_behind_) ++fruitless_, ++steps_;
  }
  // Returns whether this request should stop drafting, because in too many steps in a row either no request drafted, or
  // none of this request's drafts was kept. Drafting has a cost even in steps without drafts, because the layer reads
  // every token and no step is scheduled ahead.
  bool is_fruitless() const;
  // Returns whether drafts were kept often enough to be worth the steps. Returns nothing in three cases: if there were
  // too few steps to tell, if the drafts were not worth the steps but the layer lacks keys (set_lacks_keys()), and if
  // all requests stop drafting (dismiss()).
  std::optional<bool> paid() const;
  // Returns whether the request takes part in trials.
  bool is_tried() const { return trials_ != nullptr; }
  // Records that this request stops drafting only because all requests do (DraftTrials::stop).
  void dismiss() { is_dismissed_ = true; }

  // Sets from which row the layer makes its first draft, as a number among the wanted rows of LayerDrafts::read().
  // Without a row, the layer drafts nothing. A draft model needs a row too, although it does not read the row.
  void set_layer_row(std::optional<std::int32_t> row) { layer_row_ = row; }
  const std::optional<std::int32_t>& layer_row() const { return layer_row_; }
  // Sets whether the draft model has yet to read earlier tokens of the request.
  void set_behind(bool is_behind) { is_behind_ = is_behind; }
  // Sets whether the layer lacks the keys of many of the request's tokens, and can never get them. If the layer lacks
  // them, the number of kept drafts of this request says nothing about drafts of other requests.
  void set_lacks_keys(bool lacks_keys) { lacks_keys_ = lacks_keys; }
  // Returns whether the layer or draft model has read the request's earlier tokens, as far as is known.
  bool has_keys() const { return !is_behind_ && !lacks_keys_; }
  // Returns whether the drafts of the last offer come from the layer.
  bool proposed_by_layer() const { return by_layer_; }

 private:
  // Returns the probability that is assumed for drafts of the layer while few of this request's own drafts were judged.
  double typical_of_layer() const;

  std::int64_t most_of_text_;
  std::int64_t most_of_layer_;
  DraftPace text_pace_;
  DraftPace layer_pace_;
  SuffixAutomaton text_;
  std::optional<std::int32_t> layer_row_;
  bool by_layer_ = false;
  bool is_behind_ = false;
  bool lacks_keys_ = false;
  bool is_dismissed_ = false;
  std::int64_t fruitless_ = 0;  // steps in a row without a kept draft
  std::int64_t steps_ = 0;      // steps that were judged, or in which no request drafted
  std::int64_t kept_ = 0;       // kept drafts
  std::shared_ptr<DraftTrials> trials_;
};

}  // namespace tessera
