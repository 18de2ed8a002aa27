// Models in the local cache of the Hugging Face hub, which the hub's own tools fill too:
//   <cache>/models--org--name/refs/<branch or tag>      a file: the commit it stands for
//                            /snapshots/<commit>/<file>  links into blobs/
//                            /blobs/<digest>             content, by SHA-256 (large files) or git's SHA-1
//   <cache>/.locks/models--org--name/<digest>.lock       held while the blob is written
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera {

struct HubModel {
  std::string id;                 // "org/name", or "name" for the hub's oldest
  std::string revision = "main";  // a branch, a tag or a commit's 40 digits
  // One of the repository's models in GGUF files: a type ("Q4_K_M") or a file's name. Empty: the safetensors.
  std::string gguf = {};
};

// Returns whether `text` is spelled like an id of the hub. A relative path may be spelled like that, too.
bool is_hub_id(std::string_view text);
// Returns whether `text` is one path component and neither "." nor "..". Names from a cache or a hub must pass this
// before they are used as file names.
bool is_plain_name(std::string_view text);

// The files of a model that a command reads.
enum class ModelContent : std::uint8_t {
  kConfig,   // config.json, tokenizer and templates
  kWeights,  // the files of kConfig, and the weights
};

// Paths of one model. The class does not access the file system.
class HubFolder {
 public:
  // Returns the model's paths. invalid_argument for a malformed id or revision, and if settings.cache is empty.
  static Result<HubFolder> of(const HubSettings& settings, const HubModel& model);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path blob(std::string_view digest) const { return root_ / "blobs" / digest; }
  std::filesystem::path lock(std::string_view digest) const { return locks_ / (std::string(digest) + ".lock"); }
  std::filesystem::path snapshots() const { return root_ / "snapshots"; }
  std::filesystem::path ref(std::string_view revision) const { return root_ / "refs" / revision; }

 private:
  HubFolder(std::filesystem::path root, std::filesystem::path locks)
      : root_(std::move(root)), locks_(std::move(locks)) {}
  std::filesystem::path root_;
  std::filesystem::path locks_;
};

// Returns the snapshot's folder, or the GGUF file in it that the model names. not_found for a model or revision that is
// not cached, and for a snapshot that lacks a file of `content`; the message says what was searched for and where.
Result<std::string> find_in_hub_cache(const HubSettings& settings, const HubModel& model, ModelContent content);

}  // namespace tessera
