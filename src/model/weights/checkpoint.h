// All tensors of a model, however they are spread over files: safetensors of a folder (weight_map.h), or a GGUF file
// (model/gguf/).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/mapped_file.h"
#include "tessera/base/status.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {

// The tensors of one file, by the names that model families know.
struct TensorFile {
  std::string path;
  std::vector<StoredTensor> tensors;
  std::vector<std::shared_ptr<const MappedFile>> mappings;  // keep the tensors' data alive; several if a file is split
};

class Checkpoint {
 public:
  // Maps every file and reads the headers; this takes milliseconds however large the weights are. `model_path` is as
  // model_path.h says. not_found for missing files; data_loss for corrupt files, an index that contradicts its shards,
  // and a name in two shards; invalid_argument for an index that is wrong in itself (no map, a shard name that leaves
  // the folder), and for GGUF files as gguf_tensors.h says.
  static Result<Checkpoint> open(const std::string& model_path);

  // Returns the tensor of a name. If no tensor's name begins with "model.", as in checkpoints of embedding models that
  // hold only the body, this prefix is dropped from the names that are looked up.
  //
  // Views live as long as this object, even after a move.
  const StoredTensor* find(std::string_view name) const;  // null if there is none
  // Returns a weight and checks it: it exists (else not_found with the nearest names), has this shape (else
  // invalid_argument) and one of these types (else unimplemented).
  Result<StoredTensor> get(std::string_view name, std::span<const std::int64_t> expected_shape,
                           std::span<const StoredDtype> accepted = kWeightDtypes) const;
  Result<StoredTensor> get(std::string_view name, std::initializer_list<std::int64_t> expected_shape) const {
    return get(name, std::span(expected_shape.begin(), expected_shape.size()));
  }
  // Like get() above, for a tensor of any shape.
  Result<StoredTensor> get(std::string_view name, std::span<const StoredDtype> accepted = kWeightDtypes) const;

  std::vector<std::string_view> names() const;  // sorted
  // Returns data_loss if bytes of the files were gone when they were read. Call it after reading tensors' data.
  Status check_whole() const;
  std::int64_t total_bytes() const { return total_bytes_; }
  std::size_t num_files() const { return files_.size(); }
  const std::string& model_path() const { return model_path_; }

 private:
  Checkpoint() = default;
  Status open_folder(const std::string& folder);
  Status add_safetensors(const std::string& path);
  Status add_file(TensorFile file);
  std::string_view stored_name(std::string_view name) const;

  struct Entry {
    const StoredTensor* view;
    std::size_t file;  // index into files_
  };
  std::string model_path_;
  std::vector<TensorFile> files_;
  std::unordered_map<std::string_view, Entry> by_name_;
  std::int64_t total_bytes_ = 0;
  bool has_body_prefix_ = false;  // whether some name begins with "model."
};

// Returns the end of a message about a folder with adapter_config.json: what such a folder is, and what helps.
std::string_view adapter_hint();

}  // namespace tessera
