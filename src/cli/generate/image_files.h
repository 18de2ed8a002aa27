// Reads the image files of --image and assigns them to the placeholders in a prompt.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/request.h"

namespace tessera::cli {

// Reads the files in the order of the prompt's placeholders, and replaces each placeholder by the image's tokens.
// Without files the request is unchanged. Returns an error if the model reads no images, a file is not an image, or the
// number of placeholders is wrong.
Status add_image_files(const Engine& engine, const std::vector<std::string>& files, Request& request);

}  // namespace tessera::cli
