// Performs the last step of encoding, which adds the tokens that a model expects around a text, or around and between
// two texts ("post_processor" in tokenizer.json).
#pragma once

#include <optional>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/text/field.h"

namespace tessera {

struct PairTemplate {
  std::vector<TokenId> before;
  std::vector<TokenId> between;
  std::vector<TokenId> after;
};

struct PostProcessor {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  std::optional<PairTemplate> pair = std::nullopt;  // unset: the file does not define how two texts are joined
};

// Makes the post-processor of a file. Supported types are TemplateProcessing, ByteLevel (adds nothing), BertProcessing,
// RobertaProcessing and Sequence; others are unimplemented.
Result<PostProcessor> make_post_processor(const Field& field);

}  // namespace tessera
