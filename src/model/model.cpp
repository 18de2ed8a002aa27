#include "tessera/model/model.h"

#include "tessera/model/llama.h"

namespace tessera {

Result<ModelGraphs> build_model(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops) {
  switch (config.architecture) {
    case Architecture::kLlama:
    case Architecture::kMistral:
    case Architecture::kQwen2:
    case Architecture::kQwen3: return build_llama(config, options, ops);
  }
  return internal_error("an architecture without a builder");
}

}  // namespace tessera
