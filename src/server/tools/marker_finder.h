// Finds the first of several markers ("<tool_call>", "</think>") in a text that arrives in parts. It holds back text
// that may be the beginning of a marker.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

class MarkerFinder {
 public:
  // No marker may be empty or a prefix of another marker. The views outlive the finder.
  explicit MarkerFinder(std::vector<std::string_view> markers) : markers_(std::move(markers)) {}

  // Takes one byte. Appends to `passed` the text that is certainly not part of a marker. Returns the index of the
  // marker that the byte completes, if any.
  std::optional<std::size_t> push(char c, std::string& passed) {
    held_ += c;
    while (!held_.empty()) {
      for (std::size_t i = 0; i < markers_.size(); ++i) {
        if (!markers_[i].starts_with(held_)) continue;
        if (markers_[i].size() > held_.size()) return std::nullopt;
        held_.clear();
        return i;
      }
      passed += held_.front();
      held_.erase(0, 1);
    }
    return std::nullopt;
  }

  // Returns the held text. Call it at the end of the text, when the held text can no longer become a marker.
  std::string take_held() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string_view> markers_;
  std::string held_;
};

}  // namespace tessera
