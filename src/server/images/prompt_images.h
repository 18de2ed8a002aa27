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

// Gives each image its tokens in `prompt`: an image's single placeholder is expanded to as many tokens as the image
// has, unless the prompt already has that many. Appends to `placed`. Returns invalid_argument if the prompt has neither
// one placeholder per image nor one per image token.
Status place_images(const ImageInput& input, const PreparedImages& images, std::vector<TokenId>& prompt,
                    std::vector<PromptImage>& placed);

// Returns the number of tokens of all images.
std::int64_t image_tokens(std::span<const PromptImage> images);

}  // namespace tessera
