// Opens a model in GGUF format: a single file, or all members of a split set "NAME-00001-of-00003.gguf".
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_file.h"
#include "tessera/model/weights/gguf_options.h"

namespace tessera {

class GgufModel {
 public:
  // Opens the file `path` and, if it belongs to a split set, all members of the set. `path` may name any member.
  // Returns the errors of GgufFile::open(), not_found for a missing member, and data_loss for a member that does not
  // fit the others.
  static Result<GgufModel> open(const std::string& path, const GgufOptions& options = {});

  // Returns a model that consists of one file, and may have a projector.
  static GgufModel of(GgufFile file, std::optional<GgufFile> projector = std::nullopt);

  // Returns the path of the first file, which names the model in messages.
  const std::string& path() const { return files_.front().path(); }
  const std::vector<GgufFile>& files() const { return files_; }
  // Returns the model's projector; null if it has none.
  const GgufModel* projector() const { return projector_.get(); }
  // Returns the tensor of this name from the member that has it; null if no member has it.
  const GgufTensor* find_tensor(std::string_view name) const;

  // Returns the metadata's value for a key; null if the key is absent. A value of GgufOptions::overrides comes before
  // the file's value. Of the files, only the first member's metadata are searched.
  const GgufValue* find(std::string_view key) const;
  // The next functions return the value of a key, or an error that names the file, the key, the value and what is
  // accepted. The functions "optional_…" return nothing if the key is absent. Integers are sizes or ids, from 0 to
  // kMaxInteger. A file may state a size as a list with one element for each layer. If all elements of the list are
  // equal, the list counts as an integer.
  static constexpr std::int64_t kMaxInteger = std::int64_t{1} << 30;
  Result<std::string> string(const std::string& key) const;
  Result<std::int64_t> integer(const std::string& key) const;
  Result<std::optional<std::string>> optional_string(const std::string& key) const;
  Result<std::optional<std::int64_t>> optional_integer(const std::string& key) const;
  Result<std::optional<double>> optional_number(const std::string& key) const;
  Result<std::optional<bool>> optional_boolean(const std::string& key) const;
  // Returns the error `<file>: metadata <key> is <value>; accepted: <accepted>`.
  Status wrong(const std::string& key, std::string_view accepted) const;

 private:
  GgufModel() = default;
  std::vector<GgufFile> files_;
  std::shared_ptr<const GgufModel> projector_;
  struct Override {
    std::string key;
    std::string bytes;  // the value as a file stores it
    GgufValue value;    // borrows `bytes`
  };
  using Overrides = std::deque<Override>;       // elements keep their addresses
  std::shared_ptr<const Overrides> overrides_;  // null if there are none
};

// Returns whether a file name has the form of a split set's member, "NAME-00001-of-00003.gguf".
bool is_split_name(const std::string& path);

// Returns the GGUF file for `model_path`. The path may be a file whose name ends in ".gguf", or a folder without
// safetensors that contains exactly one GGUF model. If this model is a split set, returns its first member. Image
// projectors ("mmproj-…") do not count as models. Returns nothing for any other path. Returns invalid_argument if a
// folder contains several models, and the message lists their names.
Result<std::optional<std::string>> find_gguf(const std::string& model_path);

}  // namespace tessera
