// Embeddings that a request gives instead of a prompt's ids.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/engine/request.h"
#include "tessera/model/config/config.h"

namespace tessera {

// Checks that input_embeds, which is not empty, has whole rows of finite numbers and comes without images.
Status check_embeddings(const Request& request, std::int64_t hidden_size);

// Gives a request with embeddings a prompt of as many tokens, and makes its rows as long as those of images, which
// carry more values; the additional values are zero. Precondition: check_embeddings().
void take_embeddings(const ModelConfig& config, Request& request);

}  // namespace tessera
