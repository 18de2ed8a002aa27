// The last step of encoding: the tokens a model wants around a text ("post_processor" in
// tokenizer.json), for one text (the form for pairs is not read).
#pragma once

#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/text/field.h"

namespace tessera {

struct PostProcessor {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

// Types: TemplateProcessing, ByteLevel (adds nothing), BertProcessing, RobertaProcessing, Sequence;
// another is unimplemented.
Result<PostProcessor> make_post_processor(const Field& field);

}  // namespace tessera
