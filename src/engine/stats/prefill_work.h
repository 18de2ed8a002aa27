// Counts the prompt tokens that an engine has computed since it started, and the time of the forwards that computed
// them.
#pragma once

#include <cstdint>

namespace tessera {

struct PrefillWork {
  std::int64_t tokens = 0;        // computed prompt tokens, and output tokens that are computed again
  std::int64_t microseconds = 0;  // time of the forwards that had such tokens, mixed ones included

  void add(const PrefillWork& more) {
    tokens += more.tokens;
    microseconds += more.microseconds;
  }
  friend bool operator==(const PrefillWork&, const PrefillWork&) = default;
};

}  // namespace tessera
