// Checked access to the parameters of a request's query. Errors are those of api_fields.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/server/api_result.h"

namespace tessera {

// Returns a parameter that must be a whole number within [low, high]. Returns nothing if the query lacks the parameter.
ApiResult<std::optional<std::int64_t>> query_integer(std::string_view query, std::string_view name, std::int64_t low,
                                                     std::int64_t high);

// Returns a parameter that must be "true" or "false". Returns false if the query lacks the parameter.
ApiResult<bool> query_boolean(std::string_view query, std::string_view name);

// Returns whether the query's "order" is "desc", which is also the default. Error: a value other than "asc" and "desc".
ApiResult<bool> query_descends(std::string_view query);

// Returns one page of a list in OpenAI's form. `items` are objects with an "id", newest first. The query chooses the
// page by "limit", "order" and "after". "limit" must be 1 to `most`. If it is absent, the limit is `otherwise`. "after"
// is the id of the item before the page.
ApiResult<std::string> list_body(std::string_view query, std::span<const Json> items, std::int64_t most,
                                 std::int64_t otherwise);

}  // namespace tessera
