// A model in GGUF files: one file, or the members of a split set "NAME-00001-of-00003.gguf".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_file.h"

namespace tessera {

class GgufModel {
 public:
  // Opens the file `path`, and, if it belongs to a set, all members of the set. Any member may be named. Errors are
  // those of GgufFile::open; not_found names a member that is missing, and data_loss one that does not fit the others.
  static Result<GgufModel> open(const std::string& path);

  // Returns the model of one file, which belongs to no set.
  static GgufModel of(GgufFile file);

  // Returns the path of the first member, which stands for the model in messages.
  const std::string& path() const { return files_.front().path(); }
  const std::vector<GgufFile>& files() const { return files_; }
  // Returns the tensor of this name of whatever member; null if there is none.
  const GgufTensor* find_tensor(std::string_view name) const;

  // The metadata, which the first member has.
  const GgufValue* find(std::string_view key) const { return files_.front().find(key); }
  // Return the value of a key, or an error that names file, key, value and what is accepted. The optional ones return
  // nothing for an absent key. Integers are sizes or ids: from 0 to kMaxInteger. A list in place of an integer is
  // accepted if all of its elements are equal, because files may state a size for each layer.
  static constexpr std::int64_t kMaxInteger = std::int64_t{1} << 30;
  Result<std::string> string(const std::string& key) const;
  Result<std::int64_t> integer(const std::string& key) const;
  Result<std::optional<std::string>> optional_string(const std::string& key) const;
  Result<std::optional<std::int64_t>> optional_integer(const std::string& key) const;
  Result<std::optional<double>> optional_number(const std::string& key) const;
  Result<std::optional<bool>> optional_boolean(const std::string& key) const;
  // Returns `<file>: metadata <key> is <value>; accepted: <accepted>`.
  Status wrong(const std::string& key, std::string_view accepted) const;

 private:
  GgufModel() = default;
  std::vector<GgufFile> files_;
};

// Returns whether a file's name is that of a member of a set, "NAME-00001-of-00003.gguf".
bool is_split_name(const std::string& path);

// Returns the GGUF file that `model_path` stands for: a file whose name ends in ".gguf", or the one model in GGUF files
// that a folder without safetensors holds (the first member of a split set; projectors of images, "mmproj-…", are no
// model). Nothing if the path stands for no GGUF file. invalid_argument, with their names, if a folder holds several.
Result<std::optional<std::string>> find_gguf(const std::string& model_path);

}  // namespace tessera
