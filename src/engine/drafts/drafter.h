// Drafts of one request's next tokens, from its own text: where the text's end occurred earlier, the tokens that
// followed there are proposed. The model then computes the last token and all drafts in one forward, and the drafts
// that it would have chosen too are kept (Sequence, Engine). No weights are needed.
//
// How many tokens are proposed follows the request: twice as many after drafts that were all kept, one more than were
// kept otherwise. After a decode without any kept draft the next decodes propose nothing: at first one, then two, four
// and so on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/drafts/suffix_automaton.h"

namespace tessera {

class Drafter {
 public:
  // `most`: drafts of a step, at least 1.
  explicit Drafter(std::int64_t most) : most_(most), length_(std::min<std::int64_t>(most, 2)) {}

  // Reads up to `most` of the tokens that it has not read yet, and returns how many. `tokens` is the request's text so
  // far; it only grows from call to call.
  std::int64_t read(std::span<const TokenId> tokens, std::int64_t most);
  // Replaces `drafts` by up to `room` tokens that may follow `tokens`, possibly none. There are none before all tokens
  // are read. Call it once for each decode.
  void propose(std::span<const TokenId> tokens, std::int64_t room, std::vector<TokenId>& drafts);
  // Records how many of the drafts of the last step were kept.
  void judge(std::int64_t drafted, std::int64_t kept);

 private:
  std::int64_t most_;
  std::int64_t length_;          // proposed at most
  std::int64_t pause_ = 0;       // decodes that propose nothing
  std::int64_t next_pause_ = 1;  // the same after the next decode without a kept draft
  SuffixAutomaton text_;
};

}  // namespace tessera
