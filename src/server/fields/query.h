// Reads a request's target: the id and the action in its path, and the parameters of its query,
// "include=core%2Cmemory&format=json".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Returns the first value of the parameter `name`, decoded ("%2C" is ",", "+" is " "). Returns nothing if the query
// lacks the parameter. A name without "=" has the value "". Malformed escapes stay as they are.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

// Returns all values of the parameter `name`, decoded. A parameter with the name "NAME[]" counts too. OpenAI's clients
// write lists in this way.
std::vector<std::string> query_values(std::string_view query, std::string_view name);

// The parts of a path after a route. For the path "/v1/files/ID/content" and the route "/files/", the id is "ID" and
// the action is "/content".
struct PathTarget {
  std::string id;
  std::string action{};  // "", or it begins with "/"
};
// Splits the part of `path` after `route`. Precondition: `path` contains `route`.
PathTarget target_of(std::string_view path, std::string_view route);

}  // namespace tessera
