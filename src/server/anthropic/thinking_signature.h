// The signature of a thinking block. A client sends the block and its signature back in the next turn. This server's
// signature proves nothing. It holds the thinking that a client asked not to see ("display": "omitted"), encoded but
// not encrypted. The server can therefore put this thinking into the next prompt without storing anything.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Returns the signature of a thinking block. `hidden` is the thinking that the block does not show, or "" if the block
// shows all thinking.
std::string signature_of_thinking(std::string_view hidden);

// Returns the hidden thinking, or "" if another server made the signature. Returns nothing if the signature begins with
// this server's mark but the rest is not base64.
std::optional<std::string> thinking_of_signature(std::string_view signature);

}  // namespace tessera
