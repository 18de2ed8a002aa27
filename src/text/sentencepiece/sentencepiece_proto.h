// Reads the normalisation settings and the pieces of a SentencePiece file (a protocol buffer,
// sentencepiece_model.proto).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

struct SentencePieceProto {
  std::string charsmap;                  // "": texts are not rewritten
  bool add_dummy_prefix = true;          // whether to put a space before the text
  bool remove_extra_whitespaces = true;  // whether to remove spaces at the ends, and all but one between words
  bool whitespace_as_suffix = false;  // whether spaces become the end of a word ("word▁"), not its start ("▁word")

  // The whole file without its self-tests and with normalisation turned off.
  std::string without_normalization;

  // Returns invalid_argument if `bytes` is not a protocol buffer; `name` names the file in the error.
  static Result<SentencePieceProto> parse(std::string_view bytes, const std::string& name);
};

// A piece of a vocabulary. Its index is its id.
struct SentencePiece {
  std::string_view text;  // borrowed from the file's bytes
  float score = 0;
  std::uint64_t kind = 1;  // as TokenKind numbers them (lists/token_lists.h)
};
// Returns the pieces of the file; errors are those of parse().
Result<std::vector<SentencePiece>> read_pieces(std::string_view bytes, const std::string& name);

}  // namespace tessera
