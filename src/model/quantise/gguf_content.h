// Describes what a GGUF file will contain, before the types of its tensors are chosen: the metadata, and the tensors
// with their elements as float32.
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
  BlockType stored = BlockType::kF32;             // the type in the source
  const std::byte* rows = nullptr;                // the rows as `stored`; null if they must be computed or permuted
  std::shared_ptr<const TensorElements> numbers;  // the elements as F32
  // The name of the source's format, and the tensor's size in this format, for messages. They are set only if GGUF
  // files do not have the format. Otherwise they are empty and 0, because `stored` determines both.
  std::string format = {};
  std::int64_t bytes = 0;

  std::int64_t elements() const;
};

struct GgufContent {
  std::string architecture;  // general.architecture
  std::string source;        // path of the source, for messages
  GgufMetadata metadata;     // all except the keys for the file's type
  std::vector<GgufSourceTensor> tensors;
  std::vector<std::string> notes;  // messages about content that is left out
  // Sizes on which the choice of types depends.
  std::int64_t layers = 0;
  std::int64_t draft_layers = 0;  // number of next-token layers, which are the last of `layers`
  std::int64_t experts = 0;
  std::int64_t queries_per_key = 1;

  // The owners of the data that the tensors borrow.
  std::shared_ptr<const GgufModel> model;
  std::shared_ptr<const Checkpoint> checkpoint;
  // Returns data_loss if the source was truncated while it was read, so that some of the bytes may have been zeros.
  Status check_whole() const;
};

// Returns the content of a GGUF model: its tensors, and its metadata. The metadata about the file type and about the
// division into several files are left out. Returns unimplemented for a type that cannot be converted to numbers.
Result<GgufContent> content_of_gguf(const GgufModel& model);

// Returns the content for a folder in Hugging Face's layout, as llama.cpp's converter writes it: metadata, tensors with
// permuted rows, and the tokenizer with chat template and sampling defaults. Returns unimplemented for a family, a
// tensor or a tokenizer that cannot be converted. The message names it.
Result<GgufContent> content_of_folder(const std::string& model_path, const ModelConfig& config);

}  // namespace tessera
