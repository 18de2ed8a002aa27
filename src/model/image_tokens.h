// What a language model knows of images: the tokens that stand for them in a prompt, and what their rows carry beside
// embeddings. The tower that makes the rows has a config of its own.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/model/config/fields.h"

namespace tessera {

struct ImageTokens {
  TokenId image;         // the placeholder: as many of them as the image has rows
  TokenId vision_start;  // before an image's placeholders
  TokenId vision_end;    // after them
  // Of Qwen3-VL: so many first layers add a vector of each image row to its token's hidden state ("deepstack").
  std::int64_t deepstack_levels = 0;

  // Values of an image's row: [1 + deepstack_levels, hidden size].
  std::int64_t row_values(std::int64_t hidden_size) const { return (1 + deepstack_levels) * hidden_size; }
  friend bool operator==(const ImageTokens&, const ImageTokens&) = default;
};

// From the members of config.json, which has a "vision_config"; ids are below `vocab_size`.
Result<ImageTokens> read_image_tokens(const Fields& fields, std::int64_t vocab_size);

}  // namespace tessera
