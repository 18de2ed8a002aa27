// The API keys that a server's clients must send, and how they stay secret.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

// The environment variable with the keys, used if no flag gives any.
inline constexpr const char* kApiKeyVariable = "TESSERA_API_KEY";

// Collects `given` and the keys of `file` ("": no file). The file has one key per line; blank lines and lines that
// begin with '#' are skipped. If neither gives a key, the environment variable does. Without any key the server is
// open. Errors: a file that cannot be read or has no key, a variable that is set but empty, a key that no header can
// hold. Errors never show a key.
Result<std::vector<std::string>> read_api_keys(const std::vector<std::string>& given, const std::string& file,
                                               const std::function<const char*(const char*)>& get);

// Overwrites the values of --api-key in a program's arguments, which other users can see in the process list.
void hide_api_keys(std::span<char*> arguments);

}  // namespace tessera::cli
