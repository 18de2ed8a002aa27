#include "tessera/model/adapters/adapter_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/model/layers/linear_parts.h"
#include "tessera/ops/adapters/adapter_linear.h"

namespace tessera {
namespace {

constexpr std::string_view kLayers = "layers.";

bool can_change(const LinearPart& part) { return !part.padded && std::holds_alternative<PlainStorage>(part.storage); }

bool contains(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

// Returns the word that a list of targets (AdapterLimits::targets) uses for a module.
std::string_view target_word(const AdaptableModule& module) {
  return module.expert >= 0 ? kExperts : last_word(module.name);
}

bool is_target(const AdapterLimits& limits, const AdaptableModule& module) {
  if (contains(limits.targets, target_word(module))) return true;
  const bool in_layer = module.expert < 0 && from_layer(module.name).starts_with(kLayers);
  return in_layer && (limits.targets.empty() || contains(limits.targets, kAllLinears));
}

// Returns the name that AdapterLimits::saved has for the linear's module. Returns "" if adapters cannot replace the
// matrix. They cannot in three cases: the linear joins several modules, the module is neither the head nor the
// embedding, or this rank has only a part of each row of the matrix.
std::string_view saved_word(const AdaptableLinear& linear) {
  if (linear.modules.size() != 1) return "";
  const bool whole_rows = linear.embeds || (linear.first_col == 0 && linear.cols == linear.modules[0].cols);
  const std::string_view word = from_layer(linear.modules[0].name);
  return whole_rows && can_be_saved(word) ? word : "";
}

// Returns the target words of the modules for which `counts` returns true. Each word occurs once.
template <class Counts>
std::string target_words(const AdapterLayout::OfRanks& linears, const Counts& counts) {
  std::set<std::string_view> words;
  for (const std::vector<AdaptableLinear>& of_rank : linears)
    for (const AdaptableLinear& linear : of_rank)
      for (const AdaptableModule& module : linear.modules)
        if (counts(module)) words.insert(target_word(module));
  return fmt::format("{}", fmt::join(words, ", "));
}

// Returns the words of the modules that adapters can replace.
std::set<std::string_view> saved_words(const AdapterLayout::OfRanks& linears) {
  std::set<std::string_view> words;
  for (const std::vector<AdaptableLinear>& of_rank : linears)
    for (const AdaptableLinear& linear : of_rank) words.insert(saved_word(linear));
  words.erase("");
  return words;
}

Status check_limits(const AdapterLimits& limits) {
  if (limits.slots < 1 || limits.slots > kMaxAdapterSlots)
    return invalid_argument(
        fmt::format("max_loras_per_batch: {} is not accepted; 1 to {} are", limits.slots, kMaxAdapterSlots));
  if (limits.max_rank < 1 || limits.max_rank > kMaxAdapterRank)
    return invalid_argument(
        fmt::format("max_lora_rank: {} is not accepted; 1 to {} are", limits.max_rank, kMaxAdapterRank));
  return ok_status();
}

}  // namespace

std::string_view last_word(std::string_view module) { return module.substr(module.rfind('.') + 1); }

std::string_view from_layer(std::string_view module) {
  if (module.starts_with(kLayers)) return module;
  const std::size_t at = module.find(".layers.");
  if (at != std::string_view::npos) return module.substr(at + 1);
  const std::string_view word = last_word(module);
  return can_be_saved(word) ? word : module;
}

std::int64_t AdaptableLinear::rows() const {
  return std::accumulate(ranges.begin(), ranges.end(), std::int64_t{0},
                         [](std::int64_t sum, const AdaptableRange& range) { return sum + range.rows; });
}

std::optional<AdaptableLinear> adaptable_linear(std::string weight, std::span<const LinearPart> parts) {
  AdaptableLinear linear{.weight = std::move(weight), .cols = parts[0].cols, .modules = {}, .ranges = {}};
  // A linear that is split by columns has only one part. Otherwise the parts are whole rows, which begin with column 0.
  if (parts[0].slice.dim == 1) linear.first_col = parts[0].slice.begin;
  for (const LinearPart& part : parts) {
    if (!can_change(part)) return std::nullopt;
    auto module = std::ranges::find(linear.modules, part.tensor, &AdaptableModule::name);
    if (module == linear.modules.end()) {
      linear.modules.push_back({.name = part.tensor, .rows = part.tensor_rows, .cols = part.tensor_cols});
      module = linear.modules.end() - 1;
    }
    const auto index = static_cast<std::size_t>(module - linear.modules.begin());
    const std::int64_t first = part.slice.dim == 0 ? part.slice.begin : 0;
    AdaptableRange* last = linear.ranges.empty() ? nullptr : &linear.ranges.back();
    if (last != nullptr && last->module == index && last->first_row + last->rows == first)
      last->rows += part.rows;
    else
      linear.ranges.push_back({.module = index, .first_row = first, .rows = part.rows});
  }
  if (linear.columns().size() > kMaxAdapterRanges) return std::nullopt;
  return linear;
}

std::vector<AdaptableLinear::Columns> AdaptableLinear::columns() const {
  std::vector<Columns> columns;
  for (const AdaptableRange& range : ranges) {
    if (!columns.empty() && columns.back().module == range.module)
      columns.back().count += range.rows;
    else
      columns.push_back({.module = range.module, .count = range.rows});
  }
  return columns;
}

Result<AdapterLayout> AdapterLayout::create(OfRanks linears, std::size_t rank, AdapterLimits limits, ir::DType dtype) {
  TRY(check_limits(limits));
  AdapterLayout layout;
  layout.dtype_ = dtype;
  layout.linears_ = std::move(linears);
  layout.rank_ = rank;
  const auto has_module = [](const AdaptableLinear& linear, const auto& counts) {
    return std::ranges::any_of(linear.modules, counts);
  };
  const auto any_linear = [&](const auto& counts) {
    return std::ranges::any_of(layout.linears_,
                               [&](const auto& of_rank) { return std::ranges::any_of(of_rank, counts); });
  };
  for (const std::string& target : limits.targets) {
    const bool known = any_linear([&](const AdaptableLinear& linear) {
      return has_module(linear, [&](const AdaptableModule& module) { return target_word(module) == target; });
    });
    if (!known && target != kAllLinears)
      return invalid_argument(
          fmt::format("lora_target_modules: adapters cannot change a module \"{}\" of this model; accepted: {}", target,
                      target_words(layout.linears_, [](const AdaptableModule&) { return true; })));
  }
  const std::set<std::string_view> savable = saved_words(layout.linears_);
  for (const std::string& word : limits.saved)
    if (!savable.contains(word))
      return invalid_argument(
          fmt::format("lora_modules_to_save: adapters cannot replace a module \"{}\" of this model; accepted: {}", word,
                      savable.empty() ? "none" : fmt::format("{}", fmt::join(savable, ", "))));
  layout.limits_ = std::move(limits);
  for (std::vector<AdaptableLinear>& of_rank : layout.linears_) {
    std::vector<AdaptableLinear> saved;
    for (const AdaptableLinear& linear : of_rank)
      if (contains(layout.limits_.saved, saved_word(linear))) saved.emplace_back(linear).whole = true;
    std::erase_if(of_rank, [&](const AdaptableLinear& linear) {
      return !has_module(linear, [&](const AdaptableModule& module) { return is_target(layout.limits_, module); });
    });
    of_rank.insert(of_rank.end(), saved.begin(), saved.end());
  }
  if (!any_linear([](const AdaptableLinear&) { return true; }))
    return unimplemented("enable_lora: the model has no linear that adapters could change");
  for (std::size_t of = 0; of < layout.linears_.size(); ++of)
    for (std::size_t i = 0; i < layout.linears_[of].size(); ++i) {
      const AdaptableLinear& linear = layout.linears_[of][i];
      PlacesOfModules& places = linear.whole ? layout.whole_places_ : layout.places_;
      for (std::size_t m = 0; m < linear.modules.size(); ++m)
        if (linear.whole || is_target(layout.limits_, linear.modules[m]))
          places[std::string(from_layer(linear.modules[m].name))].push_back({.rank = of, .linear = i, .module = m});
    }
  return layout;
}

std::vector<AdapterLayout::Place> AdapterLayout::places_of(std::string_view module, bool whole) const {
  const PlacesOfModules& places = whole ? whole_places_ : places_;
  const auto found = places.find(from_layer(module));
  return found == places.end() ? std::vector<Place>() : found->second;
}

const AdaptableLinear* AdapterLayout::find(std::string_view weight, bool embeds, bool whole) const {
  const auto found = std::ranges::find_if(linears(), [&](const AdaptableLinear& linear) {
    return linear.weight == weight && linear.embeds == embeds && linear.whole == whole;
  });
  return found == linears().end() ? nullptr : &*found;
}

std::int64_t AdapterLayout::most_share_bytes(std::size_t rank) const {
  std::int64_t values = 0;
  for (const AdaptableLinear& linear : linears_[rank]) {
    values += std::ssize(linear.modules) * rows_of_a(linear) * linear.cols;
    if (!linear.whole) values += limits_.max_rank * linear.rows();
  }
  return values * static_cast<std::int64_t>(ir::dtype_size(dtype_));
}

std::string AdapterLayout::target_names() const {
  return target_words(linears_, [this](const AdaptableModule& module) { return is_target(limits_, module); });
}

}  // namespace tessera
