// The images in a language model's config: the tokens that stand for them in a prompt, and what an image's rows hold
// besides embeddings. The tower that makes the rows has its own config.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/model/config/fields.h"

namespace tessera {

struct ImageTokens {
  TokenId image;         // the placeholder; the prompt has one for each row of the image
  TokenId vision_start;  // stands before an image's placeholders
  TokenId vision_end;    // stands after them
  // For Qwen3-VL: how many layers, from the first on, add a vector of each image row to its token's hidden state
  // ("deepstack").
  std::int64_t deepstack_levels = 0;

  // Returns the number of values of an image's row: [1 + deepstack_levels, hidden size].
  std::int64_t row_values(std::int64_t hidden_size) const { return (1 + deepstack_levels) * hidden_size; }
  friend bool operator==(const ImageTokens&, const ImageTokens&) = default;
};

// Reads the members of a config.json that has a "vision_config". Ids must be below `vocab_size`.
Result<ImageTokens> read_image_tokens(const Fields& fields, std::int64_t vocab_size);

}  // namespace tessera
