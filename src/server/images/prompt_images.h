// Where images stand in a prompt: the ids of their tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/engine/request.h"
#include "tessera/server/images/image_input.h"

namespace tessera {

// How often the placeholder stands in `prompt`.
std::int64_t count_placeholders(const ImageInput& input, std::span<const TokenId> prompt);

// Gives each image its tokens: one placeholder for an image becomes as many as it has tokens, unless each has as many
// already. Appends to `placed`. invalid_argument where the number of placeholders is neither.
Status place_images(const ImageInput& input, const PreparedImages& images, std::vector<TokenId>& prompt,
                    std::vector<PromptImage>& placed);

// Of all images.
std::int64_t image_tokens(std::span<const PromptImage> images);

}  // namespace tessera
