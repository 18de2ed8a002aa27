#include "tessera/runner/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace tessera {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 20;

struct Named {
  RunnerKind runner;
  std::string_view name;
};
constexpr std::array<Named, 3> kRunners = {
    {{RunnerKind::kPrefill, "prefill"}, {RunnerKind::kDecode, "decode"}, {RunnerKind::kEager, "eager"}}};

Status wrong(std::string_view runner, const Json& entry) {
  return data_loss(
      fmt::format("measured costs: {} has {}; accepted are lists of [size, ms], each size once", runner, entry.dump()));
}

bool is_measurement(const Json& entry) {
  if (!entry.is_array() || entry.as_array().size() != 2) return false;
  const Json& size = entry.as_array()[0];
  const Json& ms = entry.as_array()[1];
  return size.is_int() && size.as_int() >= 1 && size.as_int() <= kMostTokens && ms.is_number() &&
         std::isfinite(ms.as_double()) && ms.as_double() > 0;
}

}  // namespace

void CostTable::add(RunnerKind runner, std::int64_t size, double ms) {
  const auto [entry, is_new] = measured_.try_emplace({runner, size}, ms);
  if (!is_new) entry->second = std::min(entry->second, ms);
  double least = std::numeric_limits<double>::infinity();
  for (auto at = measured_.upper_bound({runner, INT64_MAX}); at != measured_.lower_bound({runner, 0});) {
    --at;
    least = std::min(least, at->second);
    costs_[at->first] = least;
  }
}

bool CostTable::measured(RunnerKind runner, std::int64_t size) const { return measured_.contains({runner, size}); }

std::vector<std::int64_t> CostTable::sizes(RunnerKind runner) const {
  std::vector<std::int64_t> sizes;
  for (auto at = measured_.lower_bound({runner, 0}); at != measured_.end() && at->first.first == runner; ++at)
    sizes.push_back(at->first.second);
  return sizes;
}

std::optional<double> CostTable::ms(RunnerKind runner, std::int64_t size) const {
  const auto begin = costs_.lower_bound({runner, 0});
  const auto end = costs_.upper_bound({runner, INT64_MAX});
  const auto above = costs_.lower_bound({runner, size});
  if (above != end && above->first.second == size) return above->second;
  if (begin == end || std::next(begin) == end) return std::nullopt;
  if (above == begin) return above->second;
  const auto below = std::prev(above);
  const auto low = static_cast<double>(below->first.second);
  if (above == end) return below->second * static_cast<double>(size) / low;
  const double share = (static_cast<double>(size) - low) / (static_cast<double>(above->first.second) - low);
  return below->second + share * (above->second - below->second);
}

Json CostTable::to_json() const {
  Json json = Json::object();
  for (const auto& [runner, name] : kRunners) {
    Json list = Json::array();
    for (const std::int64_t size : sizes(runner))
      list.push_back(Json(Json::Array{Json(size), Json(measured_.at({runner, size}))}));
    json.set(std::string(name), std::move(list));
  }
  return json;
}

Result<CostTable> CostTable::from_json(const Json& json) {
  if (!json.is_object() || json.as_object().size() != kRunners.size())
    return data_loss("measured costs: no object of the lists prefill, decode and eager");
  CostTable table;
  for (const auto& [runner, name] : kRunners) {
    const Json* list = json.find(name);
    if (list == nullptr || !list->is_array())
      return data_loss(fmt::format("measured costs: {} is no list of [size, ms]", name));
    for (const Json& entry : list->as_array()) {
      if (!is_measurement(entry)) return wrong(name, entry);
      const std::int64_t size = entry.as_array()[0].as_int();
      if (table.measured(runner, size)) return wrong(name, entry);
      table.add(runner, size, entry.as_array()[1].as_double());
    }
  }
  return table;
}

}  // namespace tessera
