#include "tessera/model/hub/hub_settings.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool is_true(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word == "1" || word == "on" || word == "yes" || word == "true";
}

}  // namespace

HubSettings hub_settings_from(const std::function<const char*(const char*)>& get) {
  const auto value = [&](const char* name) {
    const char* text = get(name);
    return std::string(text == nullptr ? "" : text);
  };
  // Only shells expand "~". A variable that no shell has set may still contain "~".
  const auto path = [&](const char* name) {
    std::string text = value(name);
    if (text.starts_with("~/")) text = value("HOME") + text.substr(1);
    return text;
  };
  HubSettings settings;
  std::string home = path("HF_HOME");
  if (const std::string caches = path("XDG_CACHE_HOME"); home.empty() && !caches.empty())
    home = fs::path(caches) / "huggingface";
  if (const std::string user = value("HOME"); home.empty() && !user.empty())
    home = fs::path(user) / ".cache" / "huggingface";
  settings.cache = path("HF_HUB_CACHE");
  if (!home.empty()) {
    if (settings.cache.empty()) settings.cache = fs::path(home) / "hub";
    settings.token_file = fs::path(home) / "token";
  }
  if (const std::string endpoint = value("HF_ENDPOINT"); !endpoint.empty()) settings.endpoint = endpoint;
  settings.token = value("HF_TOKEN");
  settings.ca_file = path("SSL_CERT_FILE");
  settings.offline = is_true(value("HF_HUB_OFFLINE"));
  return settings;
}

}  // namespace tessera
