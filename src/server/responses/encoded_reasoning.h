// Reasoning as a client keeps it (reasoning.encrypted_content), so that the server need not store it. The text is
// encoded and has a checksum, and is not secret: the client has it in plain words as well.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

std::string encode_reasoning(std::string_view text);
// Returns nothing for a text that encode_reasoning() did not make.
std::optional<std::string> decode_reasoning(std::string_view encoded);

}  // namespace tessera
