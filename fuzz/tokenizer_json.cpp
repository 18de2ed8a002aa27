// Catches: crashes and endless work when a tokenizer.json is read or its tokenizer encodes or decodes; ids outside the
// vocabulary; decoded text that is not UTF-8.
#include "fuzz.h"
#include "tessera/text/stream_decoder.h"
#include "tessera/text/tokenizer.h"
#include "tessera/text/unicode.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = fuzz::as_text(data, size);
  const Result<Tokenizer> tokenizer = Tokenizer::parse(input, "tokenizer.json");
  if (!tokenizer.ok()) return 0;
  const std::string own = replace_invalid_utf8(input.substr(0, 300));
  for (const std::string& text : {std::string("Hello, wörld!  12 <unk> ab<x>\n\tÄ\xF0\x9F\x98\x80 abab"), own}) {
    const auto ids = tokenizer->encode(text);
    if (!ids.ok()) continue;
    for (const TokenId id : *ids)
      fuzz::require(id.value() >= 0 && id.value() < tokenizer->vocab_size(), "encode() gives ids of the vocabulary");
    const std::string decoded = tokenizer->decode(*ids, false);
    fuzz::require(find_invalid_utf8(decoded) == std::string_view::npos, "decode() gives UTF-8");
    StreamDecoder stream(*tokenizer, false);
    std::string streamed;
    for (const TokenId id : *ids) streamed += stream.push(id);
    streamed += stream.finish();
    fuzz::require(streamed == decoded, "a stream decodes to what decode() gives");
  }
  return 0;
}
