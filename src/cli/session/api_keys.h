// Reads the API keys that a server's clients must send. Also keeps keys out of reports and process lists.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

// The flags and the environment variable from which the server takes keys, for clients or for administrators.
struct KeySources {
  std::string_view flag;
  std::string_view file_flag;
  const char* variable;  // environment variable, used if no flag gives a key
};
inline constexpr KeySources kApiKeys = {"--api-key", "--api-key-file", "TESSERA_API_KEY"};
inline constexpr KeySources kAdminApiKeys = {"--admin-api-key", "--admin-api-key-file", "TESSERA_ADMIN_API_KEY"};

// Collects `given` and the keys of `file` ("": no file). The file has one key per line. Empty lines and lines that
// begin with '#' are skipped. If `given` is empty and there is no file, the environment variable gives the key, if it
// is set. Returns an error for a file that cannot be read or has no key, a variable that is set but empty, or a key
// that no header can hold. Errors never show a key.
Result<std::vector<std::string>> read_api_keys(const KeySources& sources, const std::vector<std::string>& given,
                                               const std::string& file,
                                               const std::function<const char*(const char*)>& get);

// Returns whether the flag's value is a key or a password. Reports must not show it.
bool is_secret_flag(std::string_view flag);
// Overwrites the values of secret flags in the program's arguments, because other users can see the arguments in the
// process list.
void hide_api_keys(std::span<char*> arguments);

}  // namespace tessera::cli
