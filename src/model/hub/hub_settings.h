// Says where models of the Hugging Face hub are kept on this machine, and where they are fetched from. The environment
// variables are those of the hub's own tools, so that both share one cache.
#pragma once

#include <functional>
#include <string>

namespace tessera {

struct HubSettings {
  std::string cache{};  // the folder of models--org--name; empty: unknown
  std::string endpoint = "https://huggingface.co";
  std::string token{};       // empty: the content of token_file, if it exists
  std::string token_file{};  // read only for a download
  std::string ca_file{};     // certificates of authorities; empty: the system's
  bool offline = false;      // any download is an error
};

// `get(name)` returns the value of an environment variable, or null if it is not set; an empty one counts as not set.
//   cache       HF_HUB_CACHE, or hub in HF_HOME; without HF_HOME, huggingface in XDG_CACHE_HOME or in .cache of HOME
//               takes its place
//   endpoint    HF_ENDPOINT
//   token       HF_TOKEN; the token file is `token` in HF_HOME
//   ca_file     SSL_CERT_FILE
//   offline     HF_HUB_OFFLINE: 1, on, yes or true
HubSettings hub_settings_from(const std::function<const char*(const char*)>& get);

}  // namespace tessera
