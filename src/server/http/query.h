// Reads parameters of a request target's query: "include=core%2Cmemory&format=json".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Returns the first value of the parameter `name`, decoded ("%2C" is ",", "+" is " "); nothing if the query lacks it. A
// name without "=" has the value "". Malformed escapes stay as they are.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

}  // namespace tessera
