// Checks that a prompt's images and its placeholders fit together. Sets the spans of a sequence's images and the
// positions of its tokens.
#pragma once

#include "tessera/base/status.h"
#include "tessera/engine/images/image_encoder.h"
#include "tessera/engine/request.h"
#include "tessera/engine/schedule/sequence.h"
#include "tessera/model/config/config.h"

namespace tessera {

// Checks that each image has its own placeholders, and that each placeholder belongs to an image. In a prompt without
// images, the placeholder's id may be an ordinary token. `encoder` is null if the model was loaded without its vision
// tower.
Status check_images(const Request& request, const ModelConfig& config, const ImageEncoder* encoder);

// Sets the spans of the images in the sequence's prompt and the positions of the prompt's tokens. Precondition:
// check_images() accepted the request.
void place_images(const ModelConfig& config, Sequence& sequence);

}  // namespace tessera
