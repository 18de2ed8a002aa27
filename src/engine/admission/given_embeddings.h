// Embeddings that a request gives instead of a prompt's ids.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/engine/request.h"
#include "tessera/model/config/config.h"

namespace tessera {

// Checks that the request's input_embeds has whole rows of finite numbers and comes without images. Precondition:
// input_embeds is not empty.
Status check_embeddings(const Request& request, std::int64_t hidden_size);

// Sets the prompt of a request with embeddings to one token for each row. If the model's image rows have more values
// than a hidden state, pads the given embeddings with zeros to that length. Precondition: check_embeddings().
void take_embeddings(const ModelConfig& config, Request& request);

}  // namespace tessera
