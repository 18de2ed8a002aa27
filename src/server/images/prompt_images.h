// Finds and places the tokens of images in a prompt.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/engine/request.h"
#include "tessera/server/images/image_input.h"

namespace tessera {

// Counts the placeholder's tokens in `prompt`.
std::int64_t count_placeholders(const ImageInput& input, std::span<const TokenId> prompt);

// Gives each image its tokens in `prompt`. If the prompt has one placeholder for each image, replaces each placeholder
// by as many placeholders as its image has tokens. If the prompt already has a placeholder for each image token, leaves
// the prompt unchanged. Appends the positions to `placed`. Returns invalid_argument in all other cases.
Status place_images(const ImageInput& input, const PreparedImages& images, std::vector<TokenId>& prompt,
                    std::vector<PromptImage>& placed);

// Returns the number of tokens of all images.
std::int64_t image_tokens(std::span<const PromptImage> images);

}  // namespace tessera
