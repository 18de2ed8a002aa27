// Ends the reasoning of one output when it has used its budget (ReasoningLimit). The next tokens are then the ids of
// the closing mark, and no others may be chosen. The model may also end its reasoning earlier; the budget then changes
// nothing.
//
// The marks are searched for in the text as it becomes final. If the tokens on the host are behind those that forwards
// in flight sample, the scheduler waits for them where the next token may have to be forced (waits()).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/strong_id.h"
#include "tessera/engine/request.h"

namespace tessera {

class ReasoningBudget {
 public:
  explicit ReasoningBudget(const ReasoningLimit& limit);

  // Returns the token that must come next, if there is one. Precondition: no token is pending.
  std::optional<TokenId> forced() const;
  // Returns whether the token after `pending` pending ones may have to be forced.
  bool waits(std::int64_t pending) const {
    if (pending == 0) return false;
    return state_ == State::kInside ? used_ + pending >= limit_.tokens : may_open_in_vain();
  }
  // Returns how many tokens may come before one may have to be forced.
  std::int64_t left() const;
  // Records the next token and the text that it made final.
  void follow(TokenId token, std::string_view text);

 private:
  enum class State : std::uint8_t { kBefore, kInside, kOver };
  void look_for_opening();
  // Returns whether the budget is used and the text ends with the beginning of an opening mark. A further piece of
  // reasoning may then begin, which must end with its first token.
  bool may_open_in_vain() const;

  ReasoningLimit limit_;
  State state_;
  std::int64_t used_ = 0;       // tokens of reasoning so far
  std::size_t num_forced_ = 0;  // how many of the closing ids have been forced
  std::string tail_;            // the end of the text, in which a mark may begin
};

}  // namespace tessera
