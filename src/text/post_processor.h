// The last step of encoding: the tokens a model wants around a text ("post_processor" in
// tokenizer.json), for one text and for a pair of them.
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
  std::optional<PairTemplate> pair = std::nullopt;  // none: the file does not say how texts are joined
};

// Types: TemplateProcessing, ByteLevel (adds nothing), BertProcessing, RobertaProcessing, Sequence;
// another is unimplemented.
Result<PostProcessor> make_post_processor(const Field& field);

}  // namespace tessera
