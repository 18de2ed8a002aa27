// Opens all tensors of a model. They come from the safetensors files of a folder (weight_map.h) or from a GGUF file
// (model/gguf/).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/mapped_file.h"
#include "tessera/base/status.h"
#include "tessera/model/weights/gguf_options.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {

// The tensors of one file, under the names that model families use.
struct TensorFile {
  std::string path;
  // Returns the file's own name of a tensor that model families know as `name`. Empty if both names are the same, as in
  // safetensors.
  std::function<std::string(std::string_view name)> own_name = {};
  std::vector<StoredTensor> tensors;
  std::vector<std::shared_ptr<const MappedFile>> mappings;  // own the tensors' data; a split GGUF model has several
};

class Checkpoint {
 public:
  // Maps every file and reads the headers. This takes milliseconds even for large weights. model_path.h describes
  // `model_path`. Returns not_found for missing files. Returns data_loss for corrupt files, for an index that
  // contradicts its shards, and for two shards that contain tensors of the same name. Returns invalid_argument for a
  // malformed index: one that has no weight map, or in which a shard's path leaves the folder. gguf_tensors.h lists the
  // errors of GGUF files.
  //
  // `gguf_options` are for GGUF models. The tensors of their projector are added.
  static Result<Checkpoint> open(const std::string& model_path, const GgufOptions& gguf_options = {});

  // Returns the tensor with this name; null if the checkpoint does not have it. Checkpoints of embedding models contain
  // only the body, and their names lack the prefix "model.". In such a checkpoint, find() ignores the prefix "model."
  // of `name`.
  //
  // The data of tensors live as long as this object, even after a move.
  const StoredTensor* find(std::string_view name) const;
  // Returns the tensor `name`, which must have this shape and one of the accepted types. Returns not_found if the
  // checkpoint has no tensor of this name. The message gives the most similar names. Returns invalid_argument if the
  // tensor has another shape, and unimplemented if it has another type.
  Result<StoredTensor> get(std::string_view name, std::span<const std::int64_t> expected_shape,
                           std::span<const StoredDtype> accepted = kWeightDtypes) const;
  Result<StoredTensor> get(std::string_view name, std::initializer_list<std::int64_t> expected_shape) const {
    return get(name, std::span(expected_shape.begin(), expected_shape.size()));
  }
  // Like get() above, for a tensor of any shape.
  Result<StoredTensor> get(std::string_view name, std::span<const StoredDtype> accepted = kWeightDtypes) const;

  std::vector<std::string_view> names() const;  // sorted
  // Returns data_loss if a file was truncated while it was read, because some of the data read may then be zeros. Call
  // this function after all data are read.
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
  // Returns the name of a tensor, which may be missing, for messages. It is the name in the file.
  std::string shown_name(std::string_view name) const;

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

// Returns the end of a message about a folder with adapter_config.json. It says what the folder is and how to use it.
std::string_view adapter_hint();

}  // namespace tessera
