// Parses tokenizer.json into plain data. The two long lists (vocabulary, merges) are views into the parsed document, so
// a vocabulary of 150 000 tokens loads without a copy. Everything else is a small Json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

struct TokenizerJson {
  enum class ModelType { kBpe, kUnigram };
  struct VocabEntry {
    std::string_view token;
    std::int32_t id;
    double score = 0;  // kUnigram
  };
  struct MergeEntry {
    std::string_view left;
    std::string_view right;
  };

  std::string file;  // name of the file, for errors
  Json normalizer;   // `normalizer` to `added_tokens` are null if the file lacks them
  Json pre_tokenizer;
  Json post_processor;
  Json decoder;
  Json added_tokens;
  ModelType model_type = ModelType::kBpe;
  Json model;  // without vocab and merges
  std::vector<VocabEntry> vocab;
  std::vector<MergeEntry> merges;  // kBpe, in order of rank
  std::shared_ptr<void> owner;     // keeps the views alive

  // Parses the file's text. `file` is used in errors only. Returns an error for ids outside [0, kMaxVocabularySize).
  static Result<TokenizerJson> parse(std::string_view text, const std::string& file);
};

// All ids must be less than this number, which is far above the size of any model's vocabulary. A larger id in a file
// is a mistake that would cost gigabytes.
inline constexpr std::int64_t kMaxVocabularySize = 1 << 24;

}  // namespace tessera
