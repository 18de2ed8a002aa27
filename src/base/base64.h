// Converts bytes to base64 and back (RFC 4648, section 4, with padding).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

std::string to_base64(std::string_view bytes);
// Returns std::nullopt for text that to_base64() cannot produce.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tessera
