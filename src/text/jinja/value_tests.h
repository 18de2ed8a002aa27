// The tests of {% if value is test(…) %}: Jinja's.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

using Test = Result<bool> (*)(Interpreter&, const Value& value, const CallArguments&);

// Null where no test has this name.
Test find_test(std::string_view name);
// The names of all tests, for error messages.
std::string test_names();

}  // namespace tessera::jinja
