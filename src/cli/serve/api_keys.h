// The API keys that a server's clients must send, and the measures that keep them secret.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

// The places from which keys of one kind come.
struct KeySources {
  std::string_view flag;
  std::string_view file_flag;
  const char* variable;  // environment variable that is used if no flag gives a key
};
inline constexpr KeySources kApiKeys = {"--api-key", "--api-key-file", "TESSERA_API_KEY"};
inline constexpr KeySources kAdminApiKeys = {"--admin-api-key", "--admin-api-key-file", "TESSERA_ADMIN_API_KEY"};

// Collects `given` and the keys of `file` ("": no file). The file has one key per line; blank lines and lines that
// begin with '#' are skipped. If there is no key in either, the environment variable gives one. Errors: a file that
// cannot be read or has no key, a variable that is set but empty, a key that no header can hold. Errors never show a
// key.
Result<std::vector<std::string>> read_api_keys(const KeySources& sources, const std::vector<std::string>& given,
                                               const std::string& file,
                                               const std::function<const char*(const char*)>& get);

// Returns whether the flag's value is a key or a password, which reports must not show.
bool is_secret_flag(std::string_view flag);
// Overwrites the values of secret flags in a program's arguments, which other users can see in the process list.
void hide_api_keys(std::span<char*> arguments);

}  // namespace tessera::cli
