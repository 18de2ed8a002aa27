// Tokens back to text ("decoder" in tokenizer.json), one token at a time: a chain of steps that each
// hand on what is certain and hold back what a later token could change.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/text/field.h"

namespace tessera {

// One text being decoded. One thread at a time.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  // Appends what the next token makes certain to `out`.
  virtual void push(std::string_view token, std::string& out) = 0;
  // Appends the rest and starts a new text.
  virtual void finish(std::string& out) = 0;
};

// What a file says, from which streams are made. Const functions are thread-safe.
//
// Differs from Hugging Face's library for byte tokens ("<0xE2>") that form no character: there a run
// with any fault loses its good characters too; here only the bytes at fault become U+FFFD, one each.
class Decoder {
 public:
  enum class Step { kReplace, kByteFallback, kFuse, kStrip, kMetaspace, kByteLevel };
  struct StepSpec {
    Step step;
    std::string pattern = {};  // kReplace, kMetaspace: the text to replace
    std::string content = {};  // kReplace: the replacement; kStrip: the character to strip
    std::int64_t start = 0;    // kStrip: the most to strip at the beginning
    std::int64_t stop = 0;     // kStrip: and at the end
    bool strip_first = false;  // kMetaspace: no space at the very beginning
  };

  // Absent: tokens joined by spaces. Types: ByteLevel, Metaspace, Replace (of a string), ByteFallback,
  // Fuse, Strip, Sequence; another, or a Replace behind a Fuse, is unimplemented.
  static Result<Decoder> create(const Field& field);

  std::unique_ptr<TokenStream> start() const;

 private:
  bool join_with_spaces_ = false;
  std::vector<StepSpec> steps_;
};

}  // namespace tessera
