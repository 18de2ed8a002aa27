// What a SentencePiece file (a protocol buffer, sentencepiece_model.proto) says about normalisation.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

struct SentencePieceProto {
  std::string charsmap;                  // "": texts are taken as they are
  bool add_dummy_prefix = true;          // a space in front of the text
  bool remove_extra_whitespaces = true;  // none at the ends, one between words
  bool whitespace_as_suffix = false;     // "word▁" instead of "▁word"

  // The whole file without self-tests, and with normalisation turned off.
  std::string without_normalization;

  // invalid_argument where `bytes` is no protocol buffer; `name` names it in the error.
  static Result<SentencePieceProto> parse(std::string_view bytes, const std::string& name);
};

}  // namespace tessera
