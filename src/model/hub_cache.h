// Models in the local cache of the Hugging Face hub, which its own tools fill too:
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
#include "tessera/model/hub_settings.h"

namespace tessera {

struct HubModel {
  std::string id;                 // "org/name", or "name" for the hub's oldest
  std::string revision = "main";  // a branch, a tag or a commit's 40 digits
};

// Whether `text` is spelled like an id of the hub. A relative path may be, too.
bool is_hub_id(std::string_view text);
// Whether it is one component of a path, and neither "." nor "..": what a cache's or a hub's words must be before they
// name a file.
bool is_plain_name(std::string_view text);

// What a command reads of a model.
enum class ModelContent : std::uint8_t {
  kConfig,   // config.json and what else is small
  kWeights,  // and the weights
};

// Paths of one model. Nothing is looked at or made.
class HubFolder {
 public:
  // invalid_argument for an id or a revision that is none, and where settings.cache is empty.
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

// The snapshot's folder. not_found, with what was looked for and where, for a model or revision that is not there, and
// for a snapshot that lacks something of `content`, which is named.
Result<std::string> find_in_hub_cache(const HubSettings& settings, const HubModel& model, ModelContent content);

}  // namespace tessera
