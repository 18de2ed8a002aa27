// Performs the second step of encoding ("pre_tokenizer" in tokenizer.json), which cuts normalised text into pieces.
// Merges never cross the ends of pieces. Byte-level tokenizers also replace bytes by their symbols here.
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
  std::vector<TextRange> ranges;  // ranges of `text`, in order, none empty
  // True if the first range begins at the beginning of the whole input.
  bool at_start = true;

  std::string_view view(const TextRange& range) const {
    return std::string_view(text).substr(range.begin, range.end - range.begin);
  }
};

// Const functions are thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Cuts every piece further, and may rewrite the text. Returns resource_exhausted if a pattern exceeds its limits.
  virtual Status apply(Pieces& pieces) const = 0;
};

// Returns null (one piece) if the field is absent. Supported types are Split, ByteLevel, Metaspace, Digits,
// Whitespace, WhitespaceSplit, Punctuation, CharDelimiterSplit, BertPreTokenizer and Sequence; others are
// unimplemented.
Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const Field& field);

}  // namespace tessera
