// A request's output as text: decoded as tokens come, and ended by the first of its stop strings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/request.h"
#include "tessera/text/stream_decoder.h"

namespace tessera {

class OutputText {
 public:
  // The tokenizer outlives this.
  OutputText(const Tokenizer& tokenizer, const Request& request);

  // The new text that is final: a suffix that may begin a stop string is held back. Stop strings are searched for where
  // `may_stop`; once one is found, matched() returns it and later calls return nothing.
  std::string push(TokenId token, bool may_stop);
  // The text held back.
  std::string finish();
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::string hand_out(std::string text, bool may_stop);
  bool cut_at_stop();
  std::size_t length_held_back() const;

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  bool keep_matched_;
  std::string held_back_;
  std::optional<std::string> matched_;
};

}  // namespace tessera
