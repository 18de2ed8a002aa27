// The second step of encoding: cuts normalised text into pieces that the merges never cross
// ("pre_tokenizer" in tokenizer.json). Byte-level tokenizers also spell the bytes here.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/text/field.h"
#include "tessera/text/split_pattern.h"

namespace tessera {

struct Pieces {
  std::string text;
  std::vector<TextRange> ranges;  // into text, in order, none empty
  // The first range begins where the whole input begins (not behind an added token).
  bool at_start = true;

  std::string_view view(const TextRange& range) const {
    return std::string_view(text).substr(range.begin, range.end - range.begin);
  }
};

// Const functions are thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Cuts every piece further, and may rewrite the text. resource_exhausted: a pattern's limits.
  virtual Status apply(Pieces& pieces) const = 0;
};

// Null (one piece) where the field is absent. Types: Split, ByteLevel, Metaspace, Digits, Whitespace,
// WhitespaceSplit, Punctuation, CharDelimiterSplit, BertPreTokenizer, Sequence; another is unimplemented.
Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const Field& field);

}  // namespace tessera
