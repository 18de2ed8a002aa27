// A request's output as text: decodes tokens as they arrive, and ends at the first stop string.
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
  // `tokenizer` must outlive this object.
  OutputText(const Tokenizer& tokenizer, const Request& request);

  // Adds a token. Returns the text that is final and was not returned before. If `may_stop` is set, searches for stop
  // strings, and holds back a suffix that may be the beginning of one. Once a stop string is found, matched() returns
  // it, and later calls return no text.
  std::string push(TokenId token, bool may_stop);
  // Returns the text that was held back.
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
