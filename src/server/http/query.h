// Reads parts of a request's target: what its path names, and parameters of its query:
// "include=core%2Cmemory&format=json".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Returns the first value of the parameter `name`, decoded ("%2C" is ",", "+" is " "); nothing if the query lacks it. A
// name without "=" has the value "". Malformed escapes stay as they are.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

// What a path names behind a route: "/v1/files/ID/content" behind "/files/" has the id "ID" and the action "/content".
struct PathTarget {
  std::string id;
  std::string action{};  // "", or it begins with "/"
};
// Precondition: `path` contains `route`.
PathTarget target_of(std::string_view path, std::string_view route);

}  // namespace tessera
