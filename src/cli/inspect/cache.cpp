#include <fmt/format.h>

#include <map>
#include <string>

#include "tessera/cli/commands.h"
#include "tessera/cli/model_source.h"
#include "tessera/cli/output.h"
#include "tessera/cli/table.h"
#include "tessera/compile/profile_cache.h"

namespace tessera::cli {
namespace {

using Kinds = std::map<std::string, ProfileCacheKind>;

ProfileCacheKind total_of(const Kinds& kinds) {
  ProfileCacheKind total;
  for (const auto& [name, kind] : kinds) {
    total.entries += kind.entries;
    total.bytes += kind.bytes;
  }
  return total;
}

Json to_json(const std::string& folder, bool cleared, const Kinds& kinds) {
  const ProfileCacheKind total = total_of(kinds);
  Json json = Json::object();
  json.set("path", folder).set("cleared", cleared).set("entries", total.entries).set("bytes", total.bytes);
  Json by_kind = Json::object();
  for (const auto& [name, kind] : kinds) {
    Json one = Json::object();
    one.set("entries", kind.entries).set("bytes", kind.bytes);
    by_kind.set(name, std::move(one));
  }
  return json.set("kinds", std::move(by_kind));
}

std::string cache_text(const std::string& folder, bool cleared, const Kinds& kinds) {
  const ProfileCacheKind total = total_of(kinds);
  Table table({"kind", ">entries", ">size"});
  for (const auto& [name, kind] : kinds) table.add({name, count_text(kind.entries), bytes_text(kind.bytes)});
  const std::string head =
      fmt::format("{}: {}{} of {}\n", folder, cleared ? "removed " : "",
                  total.entries == 1 ? "1 entry" : count_text(total.entries) + " entries", bytes_text(total.bytes));
  return table.empty() ? head : head + table.text();
}

}  // namespace

Status run_cache(const CacheOptions& options) {
  const std::string folder = cache_dir();
  if (folder.empty())
    return not_found(
        "there is no cache folder: none of TESSERA_CACHE_DIR, SGLANG_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
  const bool clear = options.action == CacheAction::kClear;
  const Kinds kinds = TRY(clear ? clear_profiles(folder) : list_profiles(folder));
  return write_output(options.json ? to_json(folder, clear, kinds).dump() + "\n" : cache_text(folder, clear, kinds));
}

}  // namespace tessera::cli
