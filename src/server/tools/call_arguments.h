// Reads the arguments of tool calls that may have been cut off or may be malformed. A model writes such arguments, the
// server passes them on, and clients send them back in the next turn.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/json.h"

namespace tessera {

// Returns whether clients can use the arguments of a call: they are the JSON text of an object, or "". Repeated keys
// and numbers out of range count as well, because clients read them.
bool are_whole_arguments(std::string_view arguments);

// Returns arguments in the form that chat templates expect: the object whose JSON text `arguments` is, or {} for "".
// Arguments that Json::parse() does not read stay the text that they are.
Json shown_arguments(const std::string& arguments);

// Some templates print the members of a call's arguments, and fail if the arguments are a text. Returns messages in
// which the object {"arguments": TEXT} stands for each text. Returns nothing if all arguments are objects.
std::optional<Json> with_argument_objects(const Json& messages);

}  // namespace tessera
