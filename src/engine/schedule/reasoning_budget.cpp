#include "tessera/engine/schedule/reasoning_budget.h"

#include <algorithm>
#include <limits>

namespace tessera {

ReasoningBudget::ReasoningBudget(const ReasoningLimit& limit)
    : limit_(limit), state_(limit.opened ? State::kInside : State::kBefore) {}

std::optional<TokenId> ReasoningBudget::forced() const {
  if (state_ != State::kInside || used_ < limit_.tokens) return std::nullopt;
  return limit_.closing_ids[num_forced_];
}

std::int64_t ReasoningBudget::left() const {
  const std::int64_t rest = std::max<std::int64_t>(limit_.tokens - used_, 0);
  if (may_open_in_vain()) return 1;
  // If drafts bring a whole opening mark after the budget is used, the reasoning behind it may be some drafts long.
  const bool is_free = state_ == State::kOver || (state_ == State::kBefore && rest == 0);
  return is_free ? std::numeric_limits<std::int64_t>::max() : rest;
}

bool ReasoningBudget::may_open_in_vain() const {
  if (state_ != State::kBefore || !limit_.repeats || used_ < limit_.tokens) return false;
  for (std::size_t size = std::min(tail_.size(), limit_.opening.size()); size > 0; --size)
    if (tail_.ends_with(std::string_view(limit_.opening).substr(0, size))) return true;
  return false;
}

void ReasoningBudget::follow(TokenId token, std::string_view text) {
  if (state_ == State::kOver) return;
  const std::optional<TokenId> closes = forced();
  if (state_ == State::kInside) ++used_;
  tail_ += text;
  if (state_ == State::kBefore) return look_for_opening();
  if (closes == token) ++num_forced_;
  const std::string& closing = limit_.closing;
  // The text has no mark if special tokens are left out of it.
  const bool is_mark = limit_.closing_ids.size() == 1 && token == limit_.closing_ids[0];
  const bool is_written = !closing.empty() && tail_.find(closing) != std::string::npos;
  const bool is_closed = is_mark || is_written || num_forced_ == limit_.closing_ids.size();
  if (is_closed) {
    state_ = limit_.repeats ? State::kBefore : State::kOver;
    num_forced_ = 0;
    tail_.clear();
  } else if (tail_.size() >= closing.size()) {
    tail_.erase(0, tail_.size() - closing.size() + 1);
  }
}

// Reasoning that comes once is at the beginning of the text, after white space. Reasoning that repeats may begin
// anywhere.
void ReasoningBudget::look_for_opening() {
  const std::string& opening = limit_.opening;
  const std::size_t at = limit_.repeats ? tail_.find(opening) : tail_.find_first_not_of(" \t\r\n");
  if (limit_.repeats && at == std::string::npos) {
    if (tail_.size() >= opening.size()) tail_.erase(0, tail_.size() - opening.size() + 1);
    return;
  }
  if (at == std::string::npos) return;
  const std::string_view begun = std::string_view(tail_).substr(at, opening.size());
  if (!opening.starts_with(begun)) {
    state_ = State::kOver;
  } else if (begun.size() == opening.size()) {
    state_ = State::kInside;
    tail_.erase(0, at + opening.size());
  }
}

}  // namespace tessera
