// The keys that clients of a server must show, and how they stay secret.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

// The variable that has the keys where no flag gives any.
inline constexpr const char* kApiKeyVariable = "TESSERA_API_KEY";

// Collects `given` and the keys of `file` ("": no file). The file has one key a line; blank lines and lines that begin
// with '#' are no keys. Where neither gives a key, the variable does. No key at all leaves the server open. Errors: a
// file that cannot be read or has no key, a variable that is set and empty, a key that no header can hold. They show no
// key.
Result<std::vector<std::string>> read_api_keys(const std::vector<std::string>& given, const std::string& file,
                                               const std::function<const char*(const char*)>& get);

// Overwrites the values of --api-key among a program's arguments, which other users see in the list of processes.
void hide_api_keys(std::span<char*> arguments);

}  // namespace tessera::cli
