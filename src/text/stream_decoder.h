// Ids in one at a time, text out as soon as it is certain.
//
//   StreamDecoder stream(tokenizer);
//   for (TokenId id : generated) send(stream.push(id));
//   send(stream.finish());
//
// Every piece handed out is well-formed UTF-8 and the pieces together equal Tokenizer::decode of all
// ids. Bytes of a character that is not complete yet, and text a later token could still change, are
// held back; finish() hands them out, an incomplete character as U+FFFD.
//
// One object per stream, used by one thread at a time. It borrows from the tokenizer, which must
// outlive it (moving the Tokenizer object is allowed). Memory: the held-back bytes only.
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

  // The text that has become certain; often "".
  std::string push(TokenId id);
  // The rest. Afterwards the object starts a new text.
  std::string finish();

 private:
  friend class Tokenizer;
  void push_to(TokenId id, std::string& out);

  const TokenizerParts* parts_;
  bool skip_special_;
  std::unique_ptr<TokenStream> stream_;
};

}  // namespace tessera
