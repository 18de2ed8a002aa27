// Encodes texts that the client keeps and sends back in fields named encrypted_content: reasoning, and the summary of a
// compacted conversation. The server therefore need not store them. A text is encoded and has a checksum. It is not
// secret, because the client has the conversation anyway.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

std::string encode_text(std::string_view text);
// Returns nothing for a text that encode_text() did not make.
std::optional<std::string> decode_text(std::string_view encoded);

}  // namespace tessera
