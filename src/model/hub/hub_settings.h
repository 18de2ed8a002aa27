// Reads the settings for the Hugging Face hub: where its models are cached on this machine, and from where they are
// downloaded. The environment variables are those of the hub's own tools, so that this program shares their cache.
#pragma once

#include <functional>
#include <string>

namespace tessera {

struct HubSettings {
  std::string cache{};  // the folder that contains models--org--name; empty if unknown
  std::string endpoint = "https://huggingface.co";
  std::string token{};       // if empty, the content of token_file is used, if that file exists
  std::string token_file{};  // read only for a download
  std::string ca_file{};     // file of trusted certificates; empty for the system's file
  bool offline = false;      // if true, any download is an error
};

// Returns the settings that the environment variables give. `get(name)` returns the value of a variable, or null if it
// is not set. An empty value counts as not set. Each line shows a member and the variables that set it:
//   cache       HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else HOME/.cache/huggingface/hub
//   endpoint    HF_ENDPOINT
//   token       HF_TOKEN
//   token_file  HF_HOME/token, else XDG_CACHE_HOME/huggingface/token, else HOME/.cache/huggingface/token
//   ca_file     SSL_CERT_FILE
//   offline     HF_HUB_OFFLINE: 1, on, yes or true
HubSettings hub_settings_from(const std::function<const char*(const char*)>& get);

}  // namespace tessera
