#include "tessera/model/layers/quantised_experts.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <numeric>
#include <utility>

namespace tessera {
namespace {

using Of = ExpertParts::Of;

using Matrices = std::array<std::vector<LinearPart>*, 4>;  // gate and up, down; of this rank and of others

// Sets the formats that the checkpoint has, which must be equal, and returns them.
Result<WeightFormat> set_stored_formats(const LayerBuilder& b, const Matrices& all) {
  std::optional<WeightFormat> first;
  for (std::vector<LinearPart>* matrices : all) {
    for (LinearPart& matrix : *matrices) {
      matrix.format = TRY(b.format_of(matrix.tensor));
      if (!first) first = matrix.format;
      if (matrix.format != *first)
        return invalid_argument(fmt::format("{} is {}; accepted: {}, the format of the layer's other experts",
                                            matrix.tensor, describe(matrix.format), describe(*first)));
    }
  }
  return first.value_or(WeightFormat());
}

// Sets the format to which matrices of numbers are quantised at the start, and returns it: one that fits both of an
// expert's sizes.
WeightFormat set_formats_at_start(LayerBuilder& b, const ExpertParts& parts, const Matrices& all) {
  WeightFormat format;
  for (std::vector<LinearPart>* matrices : all)
    for (LinearPart& matrix : *matrices)
      format = matrix.format = b.format_at_start(matrix.tensor, std::gcd(parts.hidden_size(), parts.whole_size()));
  return format;
}

// Makes the weights of a stack. The parts of other ranks' experts are those that this rank does not read.
Result<QuantisedWeights> stack_of(const std::string& name, const std::vector<LinearPart>& own,
                                  const std::vector<LinearPart>& others) {
  QuantisedWeights stack = TRY(quantised_weights(name, own, LastBlock::kWhole));
  if (others.empty()) return stack;
  QuantisedWeights rest = TRY(quantised_weights(name, others, LastBlock::kWhole));
  for (std::size_t i = 0; i < stack.weights.size(); ++i) stack.weights[i].elsewhere = std::move(rest.weights[i].parts);
  return stack;
}

// Adds the weights; returns the values of the first, and appends the others to `more`.
ir::ValueId add_all(LayerBuilder& b, QuantisedWeights stack, std::vector<ir::ValueId>& more) {
  const ir::ValueId values = b.add_weight(std::move(stack.weights[0]));
  for (std::size_t i = 1; i < stack.weights.size(); ++i) more.push_back(b.add_weight(std::move(stack.weights[i])));
  return values;
}

}  // namespace

Result<std::optional<QuantisedExperts>> add_quantised_experts(LayerBuilder& b, const ExpertParts& parts,
                                                              const std::string& prefix) {
  std::vector<LinearPart> gate_up = parts.gate_up_matrices(Of::kThisRank);
  std::vector<LinearPart> down = parts.down_matrices(Of::kThisRank);
  std::vector<LinearPart> other_gate_up = parts.gate_up_matrices(Of::kOthers);
  std::vector<LinearPart> other_down = parts.down_matrices(Of::kOthers);
  const Matrices all{&gate_up, &down, &other_gate_up, &other_down};
  WeightFormat format;
  if (parts.are_separate()) format = TRY(set_stored_formats(b, all));
  if (format.is_plain()) format = set_formats_at_start(b, parts, all);
  if (format.is_plain()) return std::optional<QuantisedExperts>();
  if (format.ordered)
    return unimplemented(fmt::format("{}: experts whose columns have an order (desc_act)", gate_up[0].tensor));
  QuantisedWeights up_stack = TRY(stack_of(prefix + "gate_up_proj", gate_up, other_gate_up));
  QuantisedWeights down_stack = TRY(stack_of(prefix + "down_proj", down, other_down));
  QuantisedExperts experts{.attributes = up_stack.format.attributes(), .format = format};
  experts.attributes.emplace_back("quantised", true);
  experts.attributes.emplace_back("down_group_rows", down_stack.format.group_rows);
  experts.attributes.emplace_back("down_group_cols", down_stack.format.group_cols);
  experts.gate_up = add_all(b, std::move(up_stack), experts.more);
  experts.down = add_all(b, std::move(down_stack), experts.more);
  return std::optional(std::move(experts));
}

}  // namespace tessera
