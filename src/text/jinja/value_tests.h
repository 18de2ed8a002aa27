// Implements Jinja's tests, which templates use as {% if value is test(…) %}.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

using Test = Result<bool> (*)(Interpreter&, const Value& value, const CallArguments&);

// Returns null if no test has this name.
Test find_test(std::string_view name);
// Returns the names of all tests, for error messages.
std::string test_names();

}  // namespace tessera::jinja
