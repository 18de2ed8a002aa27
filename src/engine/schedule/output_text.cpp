#include "tessera/engine/schedule/output_text.h"

#include <algorithm>
#include <string_view>

namespace tessera {

OutputText::OutputText(const Tokenizer& tokenizer, const Request& request)
    : decoder_(tokenizer, request.skip_special_tokens),
      stops_(request.stop.texts),
      keep_matched_(request.stop.keep_matched) {}

std::string OutputText::push(TokenId token, bool may_stop) {
  if (matched_) return {};
  return hand_out(decoder_.push(token), may_stop);
}

std::string OutputText::finish() {
  if (matched_) return {};
  held_back_ += decoder_.finish();
  return std::exchange(held_back_, {});
}

std::string OutputText::hand_out(std::string text, bool may_stop) {
  if (stops_.empty()) return text;
  held_back_ += text;
  if (!may_stop || cut_at_stop()) return std::exchange(held_back_, {});
  const std::size_t ready = held_back_.size() - length_held_back();
  text = held_back_.substr(0, ready);
  held_back_.erase(0, ready);
  return text;
}

// Cuts the text at the stop string that ends first. If several end at the same place, cuts at the one that begins
// first. Returns whether the text contains a stop string.
bool OutputText::cut_at_stop() {
  std::size_t begin = std::string::npos;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_back_.find(stop);
    if (at == std::string::npos) continue;
    const std::size_t stop_end = at + stop.size();
    if (end != std::string::npos && (stop_end > end || (stop_end == end && at >= begin))) continue;
    begin = at;
    end = stop_end;
    matched_ = stop;
  }
  if (matched_) held_back_.resize(keep_matched_ ? end : begin);
  return matched_.has_value();
}

// Returns the length of the text's longest suffix that is also the beginning of a stop string.
std::size_t OutputText::length_held_back() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t length = std::min(stop.size() - 1, held_back_.size()); length > longest; --length) {
      if (std::string_view(held_back_).ends_with(std::string_view(stop).substr(0, length))) {
        longest = length;
        break;
      }
    }
  }
  return longest;
}

}  // namespace tessera
