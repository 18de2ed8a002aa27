// Reads the hub's list of a revision's files, and chooses the files that an engine needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

struct HubFile {
  std::string name;  // one component, or a module's folder and another; checked
  std::int64_t size = 0;
  std::string digest;   // hexadecimal, checked; also the blob's name in the cache
  bool is_lfs = false;  // the digest is the SHA-256 of the content; otherwise git's digest of a blob
};

struct HubListing {
  std::string commit;          // 40 digits, checked
  std::vector<HubFile> files;  // the files of the top folder, and an embedding model's <n>_Pooling/config.json
  // Returns null if there is no such file.
  const HubFile* find(std::string_view name) const;
};

// Reads the answer to GET /api/models/<id>/revision/<revision>?blobs=true. data_loss for anything else, for a file
// whose name leaves the folder and for malformed digests. `what` names the listing in errors.
Result<HubListing> parse_hub_listing(std::string_view text, const std::string& what);

// Returns the files of configuration, tokenizer and templates: *.json, *.model, *.jinja.
std::vector<HubFile> small_files(const HubListing& listing);

// Checks before any download that the weights can be read; not_found names the weight files that exist instead.
Status check_has_weights(const HubListing& listing);
// Returns the files that Checkpoint will open (weight_map.h). `weight_map` is the index's, empty without an index.
Result<std::vector<HubFile>> weight_files(const HubListing& listing,
                                          const std::map<std::string, std::string>& weight_map);

}  // namespace tessera
