// Describes how a language model's prompts contain images: the tokens that stand for an image, and the size of the rows
// that the vision tower computes for an image. The vision tower has a config of its own.
#pragma once

#include <cstdint>

#include "tessera/base/json_fields.h"
#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"

namespace tessera {

struct ImageTokens {
  TokenId image;         // the placeholder; a prompt has one for each row from the vision tower
  TokenId vision_start;  // precedes an image's placeholders
  TokenId vision_end;    // follows an image's placeholders
  // The number of deepstack levels (Qwen3-VL). A row holds the embedding of one placeholder and one further vector for
  // each level. Layer i of the language model, counted from 0, adds the vector of level i to the placeholder's hidden
  // state.
  std::int64_t deepstack_levels = 0;

  // Returns the number of values in a row, whose shape is [1 + deepstack_levels, hidden_size].
  std::int64_t row_values(std::int64_t hidden_size) const { return (1 + deepstack_levels) * hidden_size; }
  friend bool operator==(const ImageTokens&, const ImageTokens&) = default;
};

// Reads the ids from a config.json that has a "vision_config". They must be below `vocab_size`. The caller sets
// deepstack_levels.
Result<ImageTokens> read_image_tokens(const Fields& fields, std::int64_t vocab_size);

}  // namespace tessera
