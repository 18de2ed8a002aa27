#include "tessera/text/stream_decoder.h"

#include "tessera/text/tokenizer.h"
#include "tessera/text/tokenizer_parts.h"

namespace tessera {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : parts_(tokenizer.parts_.get()), skip_special_(skip_special), stream_(parts_->decoder.start()) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  push_to(id, out);
  return out;
}

void StreamDecoder::push_to(TokenId id, std::string& out) {
  if (skip_special_ && parts_->is_special(id)) return;
  if (const auto token = parts_->token(id)) stream_->push(*token, out);
}

std::string StreamDecoder::finish() {
  std::string out;
  stream_->finish(out);
  return out;
}

}  // namespace tessera
