// Drafts the next tokens of one request. The model then computes the last token and all drafts in one forward. The
// drafts that it would have chosen too are kept (Sequence, Engine).
//
// Drafts come from the request's own text: if its last tokens occurred earlier, the tokens that followed them are
// proposed. This needs no weights. If the model has a next-token layer, drafts come from that layer (LayerDrafts),
// unless the text repeats itself at length.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/drafts/draft_pace.h"
#include "tessera/engine/drafts/suffix_automaton.h"

namespace tessera {

class Drafter {
 public:
  // Drafts up to `most_of_text` tokens (at least 1) from the text, and up to `most_of_layer` by a next-token layer; 0
  // means that there is no layer.
  explicit Drafter(std::int64_t most_of_text, std::int64_t most_of_layer = 0);

  // Reads up to `most` of the tokens that it has not read yet, and returns how many. `tokens` is the request's text so
  // far; it only grows from call to call.
  std::int64_t read(std::span<const TokenId> tokens, std::int64_t most);
  // Replaces `drafts` by up to `room` tokens that may follow `tokens`, possibly none. Nothing is drafted from the text
  // before all tokens are read. Of the layer's drafts only the first is known; the others are 0 until
  // LayerDrafts::complete(). Call it once for each decode.
  void propose(std::span<const TokenId> tokens, std::int64_t room, std::vector<TokenId>& drafts);
  // Records how many of the drafts of the last step were kept.
  void judge(std::int64_t drafted, std::int64_t kept);

  // The layer's first draft behind the newest token.
  struct LayerDraft {
    TokenId token;
    std::int32_t row;  // row of draft_hidden that the next draft continues; -1: overwritten, so there is no next draft
  };
  // Sets the layer's first draft, or removes it if the layer has none.
  void set_layer_draft(std::optional<LayerDraft> draft) { layer_draft_ = draft; }
  const std::optional<LayerDraft>& layer_draft() const { return layer_draft_; }
  // Records that a forward overwrites draft_hidden.
  void forget_layer_row() {
    if (layer_draft_) layer_draft_->row = -1;
  }
  // Returns whether the last proposal was the layer's.
  bool proposed_by_layer() const { return by_layer_; }

 private:
  // Returns how many tokens the layer drafts, `room` at most.
  std::int64_t count_of_layer(std::int64_t room);

  DraftPace text_pace_;
  std::optional<DraftPace> layer_pace_;  // none: there is no layer
  SuffixAutomaton text_;
  std::optional<LayerDraft> layer_draft_;
  bool by_layer_ = false;
};

}  // namespace tessera
