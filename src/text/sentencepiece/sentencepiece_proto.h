// The normalisation settings of a SentencePiece file (a protocol buffer, sentencepiece_model.proto).
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

struct SentencePieceProto {
  std::string charsmap;                  // "": texts are not rewritten
  bool add_dummy_prefix = true;          // puts a space before the text
  bool remove_extra_whitespaces = true;  // removes spaces at the ends, and all but one between words
  bool whitespace_as_suffix = false;     // "word▁" instead of "▁word"

  // The whole file without its self-tests and with normalisation turned off.
  std::string without_normalization;

  // Returns invalid_argument if `bytes` is not a protocol buffer; `name` names it in the error.
  static Result<SentencePieceProto> parse(std::string_view bytes, const std::string& name);
};

}  // namespace tessera
