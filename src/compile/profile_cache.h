// Keeps measurements, and choices that were made from measurements, as small JSON values on disk for later runs. The
// keys are content hashes.
//
//   ProfileCache cache({.root = "/home/me/.cache/tessera"});
//   Hasher key; key.add(graph_text); key.add(device_name);
//   std::optional<Json> costs = cache.load("costs", key.finish());
//   cache.save("costs", key.finish(), measured.to_json());
//
//   <root>/profiles/v1/<kind>-<32 digits>.json    an entry
//                                       ….new     a file that is being written, or that its writer left unfinished
//
// An error of the cache never makes a start fail. If an entry is damaged, belongs to another key or has another
// version, it counts as absent, and the next save replaces it. If the folder cannot be used, nothing is kept. The cache
// warns once about bad entries and once about the folder. Processes share a folder without locks: an entry is written
// to a temporary file, synced and renamed. Not thread-safe: each object is used by one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/hash.h"
#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

struct ProfileCacheOptions {
  std::string root{};  // the folder of the cache; if empty, nothing is kept
  // The maximum number of bytes of all entries. If they take more, the oldest entries are deleted.
  std::int64_t max_bytes = std::int64_t{64} << 20;
};

class ProfileCache {
 public:
  explicit ProfileCache(ProfileCacheOptions options) : options_(std::move(options)) {}

  bool enabled() const { return !options_.root.empty(); }
  // Returns the entry, or nothing if there is none. `kind` consists of lower-case letters and '_'.
  std::optional<Json> load(std::string_view kind, const Hash128& key);
  // Like load(), but a found entry does not count as a hit. Callers use it to look again for an entry that another
  // process may have written.
  std::optional<Json> look(std::string_view kind, const Hash128& key);
  std::int64_t hits() const { return hits_; }  // number of entries that load() found
  // Writes the entry, replacing an existing one. Takes some milliseconds: a write, a sync and a listing of the folder.
  void save(std::string_view kind, const Hash128& key, const Json& value);
  // Like save(). In addition, made_here() returns the value for the lifetime of this object, even if the cache has no
  // folder.
  void keep(std::string_view kind, const Hash128& key, const Json& value);
  // Returns the value that keep() got for this key, or null if there is none.
  const Json* made_here(std::string_view kind, const Hash128& key) const;

 private:
  Status write(std::string_view kind, const Hash128& key, const Json& value) const;
  void warn_once(bool& warned, const Status& status) const;

  ProfileCacheOptions options_;
  std::int64_t hits_ = 0;
  std::map<std::string, Json> made_here_;  // the key consists of kind and key
  bool warned_of_entry_ = false;
  bool warned_of_folder_ = false;
};

struct ProfileCacheKind {
  std::int64_t entries = 0;
  std::int64_t bytes = 0;
};

// Returns the number and the total size of the entries of each kind, over all versions. Half-written files have the
// kind "unfinished". The result is empty if the folder does not exist. Returns an error if the folder cannot be read.
Result<std::map<std::string, ProfileCacheKind>> list_profiles(const std::string& root);

// Removes all entries, and then the folders that are empty. Returns the number and the total size of the removed
// entries of each kind.
Result<std::map<std::string, ProfileCacheKind>> clear_profiles(const std::string& root);

}  // namespace tessera
