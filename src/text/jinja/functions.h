// The functions that every template may call: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

// The maximum length of a range(). Longer ranges are refused, as in Jinja's sandbox.
inline constexpr std::int64_t kMaxRange = 100'000;

std::vector<std::pair<std::string, Value>> global_functions();

}  // namespace tessera::jinja
