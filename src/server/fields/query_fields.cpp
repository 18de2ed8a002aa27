#include "tessera/server/fields/query_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/base/parsed_number.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/query.h"

namespace tessera {
namespace {

const std::string& id_of(const Json* item) { return item->find("id")->as_string(); }

}  // namespace

ApiResult<std::optional<std::int64_t>> query_integer(std::string_view query, std::string_view name, std::int64_t low,
                                                     std::int64_t high) {
  const std::optional<std::string> text = query_value(query, name);
  if (!text) return std::optional<std::int64_t>();
  const std::optional<std::int64_t> value = parsed_number<std::int64_t>(*text);
  if (!value || *value < low || *value > high)
    return invalid_field(std::string(name),
                         fmt::format("query: \"{}\" is \"{}\"; accepted: {} to {}", name, clip_text(*text), low, high));
  return value;
}

ApiResult<bool> query_boolean(std::string_view query, std::string_view name) {
  const std::string value = query_value(query, name).value_or("false");
  if (value == "true" || value == "false") return value == "true";
  return invalid_field(std::string(name),
                       fmt::format("query: \"{}\" is \"{}\"; accepted: true or false", name, clip_text(value)));
}

ApiResult<bool> query_descends(std::string_view query) {
  const std::string order = query_value(query, "order").value_or("desc");
  if (order == "asc" || order == "desc") return order == "desc";
  return invalid_field("order", fmt::format("query: \"order\" is \"{}\"; accepted: asc or desc", clip_text(order)));
}

ApiResult<std::string> list_body(std::string_view query, std::span<const Json> items, std::int64_t most,
                                 std::int64_t otherwise) {
  const std::int64_t limit = TRY(query_integer(query, "limit", 1, most)).value_or(otherwise);
  const bool descends = TRY(query_descends(query));
  std::vector<const Json*> all;
  for (const Json& item : items) all.push_back(&item);
  if (!descends) std::ranges::reverse(all);
  auto first = all.begin();
  if (const std::optional<std::string> after = query_value(query, "after")) {
    first = std::ranges::find(all, *after, id_of);
    if (first == all.end())
      return invalid_field("after", fmt::format("query: \"after\" is \"{}\"; accepted: the id of an item of the list",
                                                clip_text(*after)));
    ++first;
  }
  const auto last = all.end() - first > limit ? first + limit : all.end();
  JsonWriter json;
  json.object().key("object").value("list").key("data").array();
  for (auto item = first; item != last; ++item) json.value(**item);
  json.end_array().key("first_id").value_or_null(first != last ? id_of(*first) : "");
  json.key("last_id").value_or_null(first != last ? id_of(*(last - 1)) : "");
  return json.key("has_more").value(last != all.end()).end_object().take();
}

}  // namespace tessera
