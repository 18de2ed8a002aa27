// Parsing of literals: strings with escapes, integers, floats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera::jinja {

// The inside of a string literal with its escapes resolved.
Result<std::string> unescape(std::string_view literal);

// int(text) and float(text); none where Python raises ValueError. The error: a number beyond 64 bits.
Result<std::optional<std::int64_t>> parse_integer(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

}  // namespace tessera::jinja
