// What a GGUF file will hold before its types are chosen: metadata, and tensors as numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/gguf/gguf_metadata.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {

struct GgufSourceTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  BlockType stored = BlockType::kF32;             // the type of the source
  const std::byte* rows = nullptr;                // the rows in that type; null if they are made or in another order
  std::shared_ptr<const TensorElements> numbers;  // as F32
  // Describe, for people, a source in a format that GGUF files do not have: its name, and its bytes. Empty and 0: the
  // source has the type `stored`, and the size that follows from it.
  std::string format = {};
  std::int64_t bytes = 0;

  std::int64_t elements() const;
};

struct GgufContent {
  std::string architecture;  // general.architecture
  std::string source;        // its path, for messages
  GgufMetadata metadata;     // without those of the type of file
  std::vector<GgufSourceTensor> tensors;
  std::vector<std::string> notes;  // what is left out
  // Sizes by which types are chosen.
  std::int64_t layers = 0;
  std::int64_t experts = 0;
  std::int64_t queries_per_key = 1;

  // Own what the tensors borrow.
  std::shared_ptr<const GgufModel> model;
  std::shared_ptr<const Checkpoint> checkpoint;
  // Returns data_loss if bytes of the source were gone when they were read.
  Status check_whole() const;
};

// Returns the content of a GGUF model: the same tensors and metadata, but for those of its split and type.
// unimplemented for a type whose numbers cannot be read.
Result<GgufContent> content_of_gguf(const GgufModel& model);

// Returns the content for a folder in Hugging Face's layout: metadata as llama.cpp's converter writes them, tensors in
// the order of rows that it gives them, and the tokenizer with chat template and sampling defaults. unimplemented, by
// name, for families, tensors and tokenizers that GGUF files have no place for here.
Result<GgufContent> content_of_folder(const std::string& model_path, const ModelConfig& config);

}  // namespace tessera
