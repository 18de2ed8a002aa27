// Reads "image_data" of SGLang's /generate: the images of the prompts.
#pragma once

#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/prompts.h"
#include "tessera/server/images/image_input.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Returns the images of each prompt, in order. An image is a text (a URL or base64) or an object with "url" and
// "detail". With one prompt, the field is an image or a list of images. With a batch, the field is a list with one
// entry for each prompt: an image, a list of images, or null. The result borrows from the request. Errors: 400 for a
// wrong value, and for a model that reads no images.
ApiResult<std::vector<std::vector<GivenImage>>> read_image_data(const ApiFields& fields, const ServedModel& model,
                                                                const Prompts& prompts);

}  // namespace tessera
