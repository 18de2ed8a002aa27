// Converts values as Python prints them, ['a', {'b': True}], into JSON. Chat templates that print a call's arguments by
// Jinja's `string` filter show this form, and models trained on such text write it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Returns the JSON text of a list, a tuple or a dict with string keys; nothing if `text` is something else. The depth
// is limited to kMaxJsonDepth.
std::optional<std::string> python_literal_as_json(std::string_view text);

}  // namespace tessera
