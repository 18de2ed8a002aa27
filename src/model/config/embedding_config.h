// Describes how an embedding model turns a text's hidden states into one vector. sentence-transformers stores this
// description beside the checkpoint: modules.json lists the modules that follow the transformer, and the folder of the
// module Pooling contains a config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// Selects the rows of the last layer's normed hidden states from which the vector is computed.
enum class Pooling : std::uint8_t {
  kNone,
  kLast,   // the last token's row ("lasttoken")
  kMean,   // the mean of all tokens' rows ("mean_tokens")
  kFirst,  // the first token's row ("cls_token")
};
std::string_view pooling_name(Pooling pooling);  // "none", "last", "mean", "first"

struct EmbeddingConfig {
  Pooling pooling = Pooling::kLast;
  bool normalise = true;  // whether vectors are scaled to length one

  // Reads the config from the model's folder. Returns nothing if there is no modules.json or if modules.json has no
  // module Pooling. Vectors are normalised if modules.json has a module Normalize. Errors name the file and the field.
  // Returns unimplemented for an unsupported module (Dense) or way of pooling, invalid_argument for malformed files,
  // and not_found if the module Pooling has no config.json.
  static Result<std::optional<EmbeddingConfig>> read(const std::string& folder, std::int64_t hidden_size);

  // Returns the first `dimensions` numbers of a pooled vector, which must have at least that many numbers. Normalises
  // them if `normalise` is true. A zero vector stays zero.
  std::vector<float> finish(std::span<const float> pooled, std::int64_t dimensions) const;
};

}  // namespace tessera
