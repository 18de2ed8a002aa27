// Encodes reasoning for the field reasoning.encrypted_content, which the client keeps and sends back. The server
// therefore need not store it. The text is encoded and has a checksum. It need not be secret, because the client also
// has it as plain text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

std::string encode_reasoning(std::string_view text);
// Decodes the reasoning. Returns nothing for a text that encode_reasoning() did not make.
std::optional<std::string> decode_reasoning(std::string_view encoded);

}  // namespace tessera
