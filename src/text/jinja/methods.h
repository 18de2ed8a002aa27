// Implements the methods of strings, lists and dicts that templates may call. Methods that change a value are refused,
// as in the sandbox in which Hugging Face renders templates.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

// Returns a function bound to `self`; nothing if Python's type has no such method. Returns unimplemented if
// Python has a method that is not supported here, and invalid_argument if the method would change the value.
Result<std::optional<Value>> find_method(const Value& self, std::string_view name);

}  // namespace tessera::jinja
