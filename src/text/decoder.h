// Turns tokens back into text ("decoder" in tokenizer.json), one token at a time. A chain of steps passes on text that
// is final and holds back text that a later token could change.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/text/field.h"

namespace tessera {

// Decodes texts, one after another. Only one thread at a time may use a stream.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  // Takes the next token. Appends to `out` the text that this token makes final.
  virtual void push(std::string_view token, std::string& out) = 0;
  // Appends the rest of the text and starts a new text.
  virtual void finish(std::string& out) = 0;
};

// The decoder that a tokenizer file defines. start() makes a stream. Const functions are thread-safe.
//
// The decoder differs from Hugging Face's library for byte tokens ("<0xE2>") that do not form a character. In that
// library, one faulty byte token makes the whole run of byte tokens lose its valid characters. Here, each faulty byte
// alone becomes U+FFFD.
class Decoder {
 public:
  enum class Step { kReplace, kByteFallback, kFuse, kStrip, kMetaspace, kByteLevel };
  struct StepSpec {
    Step step;
    std::string pattern = {};  // kReplace, kMetaspace: the text to replace
    std::string content = {};  // kReplace: the replacement; kStrip: the character to strip
    std::int64_t start = 0;    // kStrip: at most this many characters are stripped at the beginning
    std::int64_t stop = 0;     // kStrip: at most this many characters are stripped at the end
    bool strip_first = false;  // kMetaspace: in the first token, the pattern is dropped instead of replaced
  };

  // Makes the decoder of a file. If the field is absent, tokens are joined by spaces. Supported types are ByteLevel,
  // Metaspace, Replace (of a string), ByteFallback, Fuse, Strip, and Sequence; other types are unimplemented. After a
  // Fuse or a ByteLevel, only Strip and Fuse are supported.
  static Result<Decoder> create(const Field& field);

  std::unique_ptr<TokenStream> start() const;

 private:
  bool join_with_spaces_ = false;
  std::vector<StepSpec> steps_;
};

}  // namespace tessera
