// The keys that clients of a server must show, and how they stay secret.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

// Where nothing is given: the keys of this variable.
inline constexpr const char* kApiKeyVariable = "TESSERA_API_KEY";

// `given` and those of `file` ("": none), which has one a line; blank lines and lines that begin with '#' are no keys.
// Where there is neither, the environment's one. None at all: the server is open. Errors, none of which shows a key: a
// file that cannot be read or has no key, a variable that is set and empty, a key that no header can hold.
Result<std::vector<std::string>> read_api_keys(const std::vector<std::string>& given, const std::string& file,
                                               const std::function<const char*(const char*)>& get);

// Overwrites the values of --api-key among a program's arguments, which other users see in the list of processes.
void hide_api_keys(std::span<char*> arguments);

}  // namespace tessera::cli
