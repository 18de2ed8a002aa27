#include "tessera/load/served_drafts.h"

#include <algorithm>
#include <string_view>

namespace tessera {
namespace {

const Json* object_in(const Json* json, std::string_view key) {
  const Json* const found = json != nullptr && json->is_object() ? json->find(key) : nullptr;
  return found != nullptr && found->is_object() ? found : nullptr;
}

std::optional<std::int64_t> count_in(const Json& json, std::string_view key) {
  const Json* const count = json.find(key);
  return count != nullptr && count->is_int() ? std::optional(count->as_int()) : std::nullopt;
}

std::vector<std::int64_t> counts_in(const Json& json, std::string_view key) {
  std::vector<std::int64_t> counts;
  const Json* const list = json.find(key);
  if (list == nullptr || !list->is_array()) return counts;
  for (const Json& count : list->as_array()) counts.push_back(count.is_int() ? count.as_int() : 0);
  return counts;
}

void subtract(const std::vector<std::int64_t>& earlier, std::vector<std::int64_t>& counts) {
  for (std::size_t i = 0; i < std::min(earlier.size(), counts.size()); ++i) counts[i] -= earlier[i];
}

}  // namespace

ServedDrafts ServedDrafts::since(const ServedDrafts& earlier) const {
  ServedDrafts more = *this;
  more.steps -= earlier.steps;
  more.drafted -= earlier.drafted;
  more.kept -= earlier.kept;
  subtract(earlier.drafted_at, more.drafted_at);
  subtract(earlier.kept_at, more.kept_at);
  return more;
}

std::optional<ServedDrafts> drafts_of(const Json& server_info) {
  const Json* const drafts = object_in(object_in(&server_info, "stats"), "drafts");
  if (drafts == nullptr) return std::nullopt;
  const std::optional<std::int64_t> steps = count_in(*drafts, "steps");
  const std::optional<std::int64_t> drafted = count_in(*drafts, "drafted");
  const std::optional<std::int64_t> kept = count_in(*drafts, "kept");
  if (!steps || !drafted || !kept) return std::nullopt;
  return ServedDrafts{.steps = *steps,
                      .drafted = *drafted,
                      .kept = *kept,
                      .drafted_at = counts_in(*drafts, "drafted_at"),
                      .kept_at = counts_in(*drafts, "kept_at")};
}

std::optional<ServedDrafts> ask_drafts(LoadClient& client) {
  const Result<Json> info = client.get("/get_server_info");
  return info.ok() ? drafts_of(*info) : std::nullopt;
}

}  // namespace tessera
