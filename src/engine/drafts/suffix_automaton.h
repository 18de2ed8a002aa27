// A suffix automaton of a text that grows by one token at a time. It finds the text's longest suffix that also occurs
// earlier, in amortised constant time per token (Blumer et al., The smallest automaton recognizing the subwords of a
// text, 1985).
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/strong_id.h"

namespace tessera {

class SuffixAutomaton {
 public:
  SuffixAutomaton();
  ~SuffixAutomaton();
  SuffixAutomaton(SuffixAutomaton&& other) noexcept;
  SuffixAutomaton& operator=(SuffixAutomaton&& other) noexcept;

  // Appends a token. Takes about 100 bytes of memory a token.
  void append(TokenId token);
  // Returns the number of tokens.
  std::int64_t size() const { return size_; }

  // The text's longest suffix that occurs earlier too: its length, and the number of tokens up to the end of a recent
  // earlier occurrence. A length of 0 means that the last token is new.
  struct Match {
    std::int64_t length = 0;
    std::int64_t end = 0;
  };
  const Match& match() const { return match_; }

 private:
  struct States;
  std::unique_ptr<States> states_;
  std::int64_t size_ = 0;
  Match match_;
};

}  // namespace tessera
