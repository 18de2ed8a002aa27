// Catches: crashes and endless work when a SentencePiece file is read or its tokenizer encodes a text; ids outside the
// vocabulary.
#include "fuzz.h"
#include "tessera/text/sentencepiece/sentencepiece_model.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto model =
      SentencePieceModel::parse(fuzz::as_text(data, size), "tokenizer.model", SentencePieceModel::Prefix::kEveryText);
  if (!model.ok()) return 0;
  Pieces pieces{.text = "Hello, wörld!  12 abab\n", .ranges = {}};
  pieces.ranges.push_back({0, pieces.text.size()});
  std::vector<TokenId> ids;
  if (!(*model)->encode(pieces, ids).ok()) return 0;
  for (const TokenId id : ids)
    fuzz::require((*model)->vocabulary().token(id.value()).has_value(), "encode() gives ids of the vocabulary");
  return 0;
}
