// Decodes ids one at a time, and returns text as soon as it is final.
//
//   StreamDecoder stream(tokenizer);
//   for (TokenId id : generated) send(stream.push(id));
//   send(stream.finish());
//
// Every returned piece is well-formed UTF-8, and the pieces together equal Tokenizer::decode of all ids. Bytes of an
// incomplete character, and text that a later token could still change, are held back. finish() returns them, with an
// incomplete character as U+FFFD.
//
// Texts that are decoded at the same time need one StreamDecoder each. Only one thread at a time may use a
// StreamDecoder. It borrows from the tokenizer, so the tokenizer must outlive the StreamDecoder. The Tokenizer object
// may be moved meanwhile. Memory: the held-back bytes only.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/strong_id.h"

namespace tessera {

class Tokenizer;
class TokenStream;
struct TokenizerParts;

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  // Returns the text that has become final; often "".
  std::string push(TokenId id);
  // Returns the rest. Afterwards the object starts a new text.
  std::string finish();

 private:
  friend class Tokenizer;
  void push_to(TokenId id, std::string& out);

  const TokenizerParts* parts_;
  bool skip_special_;
  std::unique_ptr<TokenStream> stream_;
};

}  // namespace tessera
