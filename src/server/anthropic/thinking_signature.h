// The signature of a thinking block. A client sends it back with the block in the next turn. Ours vouches for nothing:
// it holds the thinking that a client asked not to see ("display": "omitted"), encoded and not encrypted, so that the
// next prompt has it and nothing is stored here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// `hidden`: the thinking that the block does not show; "" if it shows all.
std::string signature_of_thinking(std::string_view hidden);

// Returns the hidden thinking; "" if the signature was made by another server. Nothing is returned for a signature of
// ours that was changed.
std::optional<std::string> thinking_of_signature(std::string_view signature);

}  // namespace tessera
