#include "tessera/text/token_model.h"

#include "tessera/text/bpe.h"
#include "tessera/text/sentencepiece/unigram.h"

namespace tessera {

Result<std::unique_ptr<TokenModel>> make_token_model(const TokenizerJson& file) {
  if (file.model_type == TokenizerJson::ModelType::kUnigram) {
    Unigram model = TRY(Unigram::create(file));
    return std::make_unique<Unigram>(std::move(model));
  }
  Bpe model = TRY(Bpe::create(file));
  return std::make_unique<Bpe>(std::move(model));
}

}  // namespace tessera
