// Parses the hub's list of a revision's files, and selects the files that an engine needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

struct HubFile {
  std::string name;  // relative path, checked to stay in the folder
  std::int64_t size = 0;
  std::string digest;   // hexadecimal, checked; also the blob's name in the cache
  bool is_lfs = false;  // true if the digest is the content's SHA-256, false if it is git's SHA-1 of the blob
};

struct HubListing {
  std::string commit;          // 40 digits, checked
  std::vector<HubFile> files;  // the files of the top folder, GGUF files of all folders, and <n>_Pooling/config.json
  // Returns the file of this name; null if the listing does not have it.
  const HubFile* find(std::string_view name) const;
};

// Parses the answer to GET /api/models/<id>/revision/<revision>?blobs=true. Returns data_loss if the answer or a digest
// in it is malformed, or if a file name leads out of the folder. `what` names the listing in errors.
Result<HubListing> parse_hub_listing(std::string_view text, const std::string& what);

// Returns the files with configuration, tokenizer and templates: *.json, *.model, *.jinja.
std::vector<HubFile> small_files(const HubListing& listing);

// Checks that the listing has weights in a supported format, before anything is downloaded. Returns not_found if it has
// none. The message names the weight files that exist.
Status check_has_weights(const HubListing& listing);
// Returns the files that Checkpoint will open (weight_map.h). `weight_map` is the map in the index file; empty if the
// model has no index file.
Result<std::vector<HubFile>> weight_files(const HubListing& listing,
                                          const std::map<std::string, std::string>& weight_map);

}  // namespace tessera
