// Describes how an embedding model makes one vector from a text's hidden states. sentence-transformers stores the
// description beside the checkpoint: modules.json lists the modules after the transformer, and the folder of the module
// Pooling has a config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// The rows of the last layer's normed hidden states from which the vector is made.
enum class Pooling : std::uint8_t {
  kNone,
  kLast,   // the last token's row ("lasttoken")
  kMean,   // the mean of all tokens' rows ("mean_tokens")
  kFirst,  // the first token's row ("cls_token")
};
std::string_view pooling_name(Pooling pooling);  // "none", "last", "mean", "first"

struct EmbeddingConfig {
  Pooling pooling = Pooling::kLast;
  bool normalise = true;  // scale vectors to length one

  // Reads the config of the model's folder. Returns nothing without modules.json, or if it names no Pooling. Vectors
  // are normalised if it names a module Normalize. Errors name file and field: unimplemented for other modules (Dense)
  // and other ways of pooling, invalid_argument for files that are wrong in themselves, not_found for a missing
  // config.json of the module Pooling.
  static Result<std::optional<EmbeddingConfig>> read(const std::string& folder, std::int64_t hidden_size);

  // Returns the first `dimensions` numbers of a pooled vector, which has at least that many; they are normalised if the
  // model's vectors are. A zero vector stays zero.
  std::vector<float> finish(std::span<const float> pooled, std::int64_t dimensions) const;
};

}  // namespace tessera
