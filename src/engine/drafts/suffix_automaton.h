// A suffix automaton of a text that grows by a token at a time. It finds the longest end of the text that also occurs
// earlier in the text, in amortised constant time a token (Blumer et al., The smallest automaton recognizing the
// subwords of a text, 1985).
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

  // Takes about 100 bytes a token.
  void append(TokenId token);
  // Number of tokens.
  std::int64_t size() const { return size_; }

  // The longest end of the text that occurs earlier too, and the number of tokens up to the end of a late earlier
  // occurrence. A length of 0: the last token is new.
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
