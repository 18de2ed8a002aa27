// Reads server-sent events from bytes that may be cut anywhere.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

class ServerEvents {
 public:
  // For each line "data:…" that `bytes` completes, calls `on_data` with the text after "data:". The text is valid only
  // during the call.
  template <class OnData>
  void push(std::string_view bytes, const OnData& on_data) {
    for (std::size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
      if (held_.empty()) {
        hand_out(bytes.substr(0, end), on_data);
      } else {
        held_ += bytes.substr(0, end);
        hand_out(held_, on_data);
        held_.clear();
      }
      bytes.remove_prefix(end + 1);
    }
    held_ += bytes;
  }

  // Returns the number of received bytes of the incomplete line.
  std::size_t held_bytes() const { return held_.size(); }

 private:
  template <class OnData>
  static void hand_out(std::string_view line, const OnData& on_data) {
    constexpr std::string_view kField = "data:";
    if (!line.starts_with(kField)) return;
    line.remove_prefix(kField.size());
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    on_data(line);
  }

  std::string held_;
};

}  // namespace tessera
