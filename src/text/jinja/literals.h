// Parses literals: strings with escapes, integers, floats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera::jinja {

// Returns the content of a string literal with its escapes resolved.
Result<std::string> unescape(std::string_view literal);

// parse_integer() returns Python's int(text, base), and parse_float() returns float(text). Both return nothing if
// Python raises ValueError. parse_integer() returns an error only for a number beyond 64 bits.
Result<std::optional<std::int64_t>> parse_integer(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

}  // namespace tessera::jinja
