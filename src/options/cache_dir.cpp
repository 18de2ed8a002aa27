#include "tessera/options/cache_dir.h"

#include <filesystem>

namespace tessera {

std::string cache_dir_from(const std::function<const char*(const char*)>& get) {
  const auto path = [&](const char* name) {
    const char* text = get(name);
    std::string value = text == nullptr ? "" : text;
    // Replaces "~" at the beginning by the home folder. A shell would have done so, but a variable may come from a file
    // that no shell reads.
    const char* home = get("HOME");
    if (value.starts_with("~/") && home != nullptr) value = home + value.substr(1);
    return value;
  };
  for (const char* name : {"TESSERA_CACHE_DIR", "SGLANG_CACHE_DIR"}) {
    if (std::string folder = path(name); !folder.empty()) return folder;
  }
  namespace fs = std::filesystem;
  if (const std::string caches = path("XDG_CACHE_HOME"); !caches.empty()) return fs::path(caches) / "tessera";
  if (const std::string home = path("HOME"); !home.empty()) return fs::path(home) / ".cache" / "tessera";
  return "";
}

}  // namespace tessera
