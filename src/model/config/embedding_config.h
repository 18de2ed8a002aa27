// How an embedding model makes one vector of a text's hidden states. sentence-transformers describes it beside the
// checkpoint: modules.json lists what follows the transformer, and the folder of the module Pooling has a config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// Which rows of the last layer's normed hidden states the vector is made of.
enum class Pooling : std::uint8_t {
  kNone,
  kLast,   // the last token's ("lasttoken")
  kMean,   // the mean of all tokens' ("mean_tokens")
  kFirst,  // the first token's ("cls_token")
};
std::string_view pooling_name(Pooling pooling);  // "none", "last", "mean", "first"

struct EmbeddingConfig {
  Pooling pooling = Pooling::kLast;
  bool normalise = true;  // to length one

  // Of the model's folder. None without modules.json, and where it names no Pooling. With it, vectors are normalised
  // where a module Normalize is named. Errors name file and field: unimplemented for other modules (Dense) and other
  // ways of pooling, invalid_argument for files that are wrong in themselves, not_found for a missing config.json of
  // the module Pooling.
  static Result<std::optional<EmbeddingConfig>> read(const std::string& folder, std::int64_t hidden_size);

  // The first `dimensions` numbers of a pooled vector, which has at least as many, normalised where the model's are.
  // Zeros stay zeros.
  std::vector<float> finish(std::span<const float> pooled, std::int64_t dimensions) const;
};

}  // namespace tessera
