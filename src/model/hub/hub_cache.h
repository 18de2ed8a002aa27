// Finds models in the local cache of the Hugging Face hub, which the hub's own tools also use:
//   <cache>/models--org--name/refs/<branch or tag>      a file that contains a commit
//                            /snapshots/<commit>/<file>  links into blobs/
//                            /blobs/<digest>             content, named by SHA-256 (large files) or git's SHA-1
//   <cache>/.locks/models--org--name/<digest>.lock       a lock file, held while the blob is written
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera {

struct HubModel {
  std::string id;                 // "org/name", or "name" for the hub's oldest models
  std::string revision = "main";  // a branch, a tag or a commit's 40 digits
  // Selects one of the repository's models in GGUF format, by a type ("Q4_K_M") or by a file name. If empty, the model
  // in safetensors is selected.
  std::string gguf = {};
  // The name of the projector's file that goes with a GGUF model. Empty: the repository's projector, if it has
  // exactly one.
  std::string projector = {};
  bool without_projector = false;  // if true, no projector is downloaded
};

// Returns whether `text` has the form of a model id. A relative path may have this form too.
bool is_hub_id(std::string_view text);
// Returns whether `text` is a single path component other than "." and "..". Names that come from a cache or a hub must
// be checked with this function before they are used as file names.
bool is_plain_name(std::string_view text);

// The files of a model that a command needs.
enum class ModelContent : std::uint8_t {
  kConfig,   // config.json, tokenizer and templates
  kWeights,  // the files of kConfig and the weights
};

// The paths of one model. This class does not access the file system.
class HubFolder {
 public:
  // Returns the model's paths. Returns invalid_argument for a malformed id or revision, and if settings.cache is empty.
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

// Returns the snapshot's folder, or the GGUF file in it if model.gguf selects one. Returns not_found if the model or
// the revision is not cached, or if the snapshot lacks a file of `content` or the named projector. The message says
// what was searched for and where. Returns failed_precondition if model.gguf is "" and the snapshot has GGUF files
// alone.
Result<std::string> find_in_hub_cache(const HubSettings& settings, const HubModel& model, ModelContent content);

}  // namespace tessera
