// The methods of strings, lists and dicts that templates may call. Methods that change a value are refused, as in the
// sandbox that Hugging Face renders templates in.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

// A function bound to `self`; nothing where Python's type has no such method either; unimplemented
// where it has one that is not supported here, invalid_argument where it would change the value.
Result<std::optional<Value>> find_method(const Value& self, std::string_view name);

}  // namespace tessera::jinja
