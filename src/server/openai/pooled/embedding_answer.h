// The answer to /v1/embeddings: a list of vectors, as numbers or as base64 of little-endian float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tessera/model/config/embedding_config.h"
#include "tessera/server/api_job.h"

namespace tessera {

struct EmbeddingStyle {
  std::string id;
  std::string model;
  EmbeddingConfig embedding{};
  std::int64_t dimensions = 0;  // length of each vector; at most the hidden size
  bool base64 = false;
  std::size_t inputs = 0;
};

std::unique_ptr<Answer> make_embedding_answer(EmbeddingStyle style);

// Returns the numbers' bytes as base64 (base/base64.h): four bytes a number, lowest byte first.
std::string base64_of(std::span<const float> values);

}  // namespace tessera
