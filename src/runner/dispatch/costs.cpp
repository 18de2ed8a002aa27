#include "tessera/runner/dispatch/costs.h"

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

bool is_size(const Json& size) { return size.is_int() && size.as_int() >= 1 && size.as_int() <= kMostTokens; }

bool is_positive(const Json& number) {
  return number.is_number() && std::isfinite(number.as_double()) && number.as_double() > 0;
}

bool is_measurement(const Json& entry) {
  return entry.is_array() && entry.as_array().size() == 2 && is_size(entry.as_array()[0]) &&
         is_positive(entry.as_array()[1]);
}

bool is_full_cost(const Json& entry) {
  return entry.is_array() && entry.as_array().size() == 3 && is_size(entry.as_array()[0]) &&
         is_positive(entry.as_array()[1]) && entry.as_array()[2].is_bool();
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

std::optional<FullCost> CostTable::full(std::int64_t size) const {
  const auto entry = full_.find(size);
  return entry == full_.end() ? std::nullopt : std::optional(entry->second);
}

bool CostTable::full_wins(std::int64_t size) const {
  const std::optional<FullCost> cost = full(size);
  return cost && cost->equal && cost->ratio * kFullMargin < 1;
}

Json CostTable::to_json() const {
  Json json = Json::object();
  for (const auto& [runner, name] : kRunners) {
    Json list = Json::array();
    for (const std::int64_t size : sizes(runner))
      list.push_back(Json(Json::Array{Json(size), Json(measured_.at({runner, size}))}));
    json.set(std::string(name), std::move(list));
  }
  Json full = Json::array();
  for (const auto& [size, cost] : full_)
    full.push_back(Json(Json::Array{Json(size), Json(cost.ratio), Json(cost.equal)}));
  json.set("full", std::move(full));
  return json;
}

Result<CostTable> CostTable::from_json(const Json& json) {
  if (!json.is_object() || json.as_object().size() != kRunners.size() + 1)
    return data_loss("measured costs: no object of the lists prefill, decode, eager and full");
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
  const Json* full = json.find("full");
  if (full == nullptr || !full->is_array()) return data_loss("measured costs: full is no list of [size, ratio, equal]");
  for (const Json& entry : full->as_array()) {
    if (!is_full_cost(entry) || table.full(entry.as_array()[0].as_int())) {
      return data_loss(fmt::format(
          "measured costs: full has {}; accepted are lists of [size, ratio, equal], each size once", entry.dump()));
    }
    const Json::Array& numbers = entry.as_array();
    table.add_full(numbers[0].as_int(), {.ratio = numbers[1].as_double(), .equal = numbers[2].as_bool()});
  }
  return table;
}

}  // namespace tessera
