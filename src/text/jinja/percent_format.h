// Implements Python's "%" formatting, for example "%d of %s" % (3, "x").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

// Supports the conversions s r d i u x X o f F e E g G c %, with flags, width and precision. Mapping keys ("%(name)s")
// and "*" are unimplemented. Missing arguments are errors. Superfluous arguments are errors too, except a single
// dict, list or range, as in Python.
Result<std::string> format_percent(std::string_view format, const std::vector<Value>& arguments, Budget& budget);

}  // namespace tessera::jinja
