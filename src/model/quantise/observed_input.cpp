#include "tessera/model/quantise/observed_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "tessera/model/quantise/file_place.h"
#include "tessera/model/quantise/folder_sizes.h"
#include "tessera/model/quantise/own_name.h"

namespace tessera {
namespace {

class InputNames {
 public:
  InputNames(const ModelConfig& config, const GgufArchitecture& architecture, std::span<const WeightSpec> weights)
      : config_(config), architecture_(architecture) {
    for (const WeightSpec& weight : weights) weights_.emplace(weight.name, &weight);
  }

  Status add(const ObservedInput& input) {
    const auto found = weights_.find(input.weight);
    if (found == weights_.end() || found->second->parts.empty())
      return internal_error(fmt::format("the weight {} has no tensors", input.weight));
    const WeightSpec& weight = *found->second;
    if (input.kind == ObservedWeight::kLinear) return add_linear(input, weight);
    const std::optional<std::int64_t> layer = own_name(weight.parts.front().tensor).layer;
    if (!layer) return no_place(weight.parts.front().tensor);
    constexpr std::array kGateUp{"gate", "up"};
    constexpr std::array kJoined{"gate_up"};
    constexpr std::array kDown{"down"};
    std::span<const char* const> stacks = kDown;
    if (input.kind == ObservedWeight::kExpertsGateUp) {
      const GgufTensorName joined{.layer = layer, .rest = "ffn_gate_up_exps.weight"};
      stacks = find_name_rule(joined, architecture_.names) != nullptr ? std::span<const char* const>(kJoined) : kGateUp;
    }
    for (const char* stack : stacks) TRY(add_entry(fmt::format("blk.{}.ffn_{}_exps.weight", *layer, stack), input));
    return ok_status();
  }

  std::vector<ImportanceEntry> take() { return std::move(entries_); }

 private:
  // Parses the name, after the config's prefix is replaced by the usual prefix "model.".
  OwnName own_name(const std::string& tensor) const {
    return parse_own_name(
        tensor.starts_with(config_.tensor_prefix) ? "model." + tensor.substr(config_.tensor_prefix.size()) : tensor);
  }

  Status no_place(const std::string& tensor) const {
    return unimplemented(
        fmt::format("tensor {} has no place in a GGUF file of architecture {}", tensor, architecture_.name));
  }

  // A weight may consist of rows of several tensors. Adds an entry for each of these tensors.
  Status add_linear(const ObservedInput& input, const WeightSpec& weight) {
    for (const WeightPart& part : weight.parts) {
      const std::optional<FilePlace> place = find_file_place(part.tensor, config_, architecture_);
      if (!place) return no_place(part.tensor);
      ObservedInput of_tensor = input;
      if (std::holds_alternative<PlainStorage>(part.storage) && part.shape.size() == 2 &&
          part.shape[1] < std::ssize(input.sums))
        of_tensor.sums.resize(static_cast<std::size_t>(part.shape[1]));
      if (place->form == TensorForm::kValueColumns) reorder_value_heads(of_tensor.sums);
      TRY(add_entry(place->name, of_tensor));
    }
    return ok_status();
  }

  // Puts the columns into the order of a GGUF file, which stores the first value head of every key head, then the
  // second value head of every key head, and so on.
  void reorder_value_heads(std::vector<double>& sums) const {
    const StoredOrder order = value_head_order(*config_.delta_net);
    const std::vector<double> own = sums;
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] = own[static_cast<std::size_t>(order.stored(static_cast<std::int64_t>(i)))];
  }

  // The rows of a tensor may belong to several weights. These weights have the same input, so the first one gives the
  // tensor's entry and the others are skipped.
  Status add_entry(const std::string& name, const ObservedInput& input) {
    if (!names_.insert(name).second) return ok_status();
    if (!std::ranges::all_of(input.sums, [](double sum) { return std::isfinite(static_cast<float>(sum)); }))
      return invalid_argument(
          fmt::format("the input of {} has numbers that are not finite or whose squares have no "
                      "finite sum; accepted: a model that computes finite numbers",
                      name));
    const auto narrow = [](const std::vector<double>& numbers) {
      return std::vector<float>(numbers.begin(), numbers.end());
    };
    entries_.push_back({.name = name, .sums = narrow(input.sums), .counts = narrow(input.counts)});
    return ok_status();
  }

  const ModelConfig& config_;
  const GgufArchitecture& architecture_;
  std::map<std::string_view, const WeightSpec*> weights_;
  std::set<std::string> names_;
  std::vector<ImportanceEntry> entries_;
};

}  // namespace

Result<std::vector<ImportanceEntry>> importance_of_inputs(const ModelConfig& config, const std::string& file,
                                                          std::span<const WeightSpec> weights,
                                                          std::span<const ObservedInput> inputs) {
  const std::string_view architecture = TRY(architecture_of_folder(config, file));
  InputNames names(config, *find_gguf_architecture(architecture), weights);
  for (const ObservedInput& input : inputs) TRY(names.add(input).with_context(file));
  return names.take();
}

}  // namespace tessera
