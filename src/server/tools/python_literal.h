// Values as Python prints them, ['a', {'b': True}], turned into JSON. Chat templates that print a call's arguments by
// Jinja's `string` filter show them so, and models that learnt from them write them so.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// The JSON text of a list, a tuple or a dict with strings as keys; none where `text` is no such thing. Nesting is
// bounded by kMaxJsonDepth.
std::optional<std::string> python_literal_as_json(std::string_view text);

}  // namespace tessera
