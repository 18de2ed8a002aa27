// Performs the first step of encoding, which rewrites the text before it is split ("normalizer" in tokenizer.json).
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/text/field.h"

namespace tessera {

// Const functions are thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Rewrites `text`, which is well-formed UTF-8 and stays so.
  virtual Status apply(std::string& text) const = 0;
};

// Returns null (no normalisation) if the field is absent. Supported types are NFC, NFD, NFKC, NFKD, Lowercase,
// Strip, StripAccents, Prepend, Replace, ByteLevel, Precompiled and Sequence; others are unimplemented.
Result<std::unique_ptr<Normalizer>> make_normalizer(const Field& field);

}  // namespace tessera
