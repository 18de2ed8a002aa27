// Implements the methods of Python's str that templates may call.
#pragma once

#include <span>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

using Method = Result<Value> (*)(Interpreter&, const Value& self, const CallArguments&);

struct NamedMethod {
  std::string_view name;
  Method method;
};

// Returns the methods. Each expects a string as `self`. The caller spends the budget for reading `self` and the
// arguments.
std::span<const NamedMethod> string_methods();

}  // namespace tessera::jinja
