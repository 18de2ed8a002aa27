#include "tessera/model/layers/quantised_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <utility>

#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/quantised/blocks/block_codes.h"

namespace tessera {
namespace {

using Of = ExpertParts::Of;

// The matrices gate_up and down of this rank, then gate_up and down of other ranks.
using Matrices = std::array<std::vector<LinearPart>*, 4>;

// Sets the format of each matrix to the format in the checkpoint. Checks that all matrices have the same format, and
// returns this format.
Result<WeightFormat> set_stored_formats(LayerBuilder& b, const Matrices& all) {
  std::optional<WeightFormat> first;
  for (std::vector<LinearPart>* matrices : all) {
    for (LinearPart& matrix : *matrices) {
      matrix.format = TRY(b.format_of(matrix.tensor));
      b.note_stored(matrix.tensor, matrix.format);
      if (!first) first = matrix.format;
      if (matrix.format != *first)
        return invalid_argument(fmt::format("{} is {}; accepted: {}, the format of the layer's other experts",
                                            matrix.tensor, describe(matrix.format), describe(*first)));
    }
  }
  return first.value_or(WeightFormat());
}

// Sets the formats of matrices that are stored as GGUF blocks, and returns the format of gate_up. Returns an
// unquantised format if operators cannot take the blocks or their codes. In that case the blocks are dequantised.
// Operators can take blocks or codes on two conditions. A rank's slice of a row must consist of whole blocks, or of
// whole groups of codes. All gate and up matrices of the layer's experts must have the same block type, and so must all
// down matrices.
//
// Operators also need numbers of rows that are multiples of sixteen. This follows from the first condition, which makes
// the numbers of columns multiples of sixteen. The number of rows of gate and up equals the number of columns of down,
// and vice versa.
WeightFormat set_blocks(LayerBuilder& b, const Matrices& all) {
  std::array<std::optional<WeightFormat>, 2> found;  // [0]: gate_up, [1]: down
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (LinearPart& matrix : *all[i]) {
      std::optional<WeightFormat>& first = found[i % 2];
      const std::optional<WeightFormat> own = b.blocks_of(matrix.tensor);
      if (!first) first = own;
      if (!own || *own != *first) return {};
      const std::int64_t whole =
          own->codes ? block_codes_format(own->blocks)->group_cols : block_type_info(own->blocks).elements;
      if (matrix.cols % whole != 0) return {};
      matrix.format = *own;
    }
  }
  for (const std::vector<LinearPart>* matrices : all)
    for (const LinearPart& matrix : *matrices) b.note_stored(matrix.tensor, matrix.format);
  return found[0].value_or(WeightFormat());
}

bool any_has_blocks(const LayerBuilder& b, const Matrices& all) {
  return std::ranges::any_of(all, [&](const std::vector<LinearPart>* matrices) {
    return std::ranges::any_of(*matrices,
                               [&](const LinearPart& matrix) { return b.blocks_of(matrix.tensor).has_value(); });
  });
}

// Sets the format to which unquantised matrices are quantised at the engine's start, and returns it. The format must
// fit the row lengths of both gate_up and down.
WeightFormat set_formats_at_start(LayerBuilder& b, const ExpertParts& parts, const Matrices& all) {
  WeightFormat format;
  for (std::vector<LinearPart>* matrices : all)
    for (LinearPart& matrix : *matrices)
      format = matrix.format = b.format_at_start(matrix.tensor, std::gcd(parts.hidden_size(), parts.whole_size()));
  return format;
}

// Makes the weights for the matrices gate_up, or down, of this rank's experts. `others` are parts of other ranks'
// experts. The weights list these parts (WeightSpec::elsewhere), but this rank does not read them.
Result<QuantisedWeights> stack_of(const std::string& name, const std::vector<LinearPart>& own,
                                  const std::vector<LinearPart>& others) {
  QuantisedWeights stack = TRY(quantised_weights(name, own, LastBlock::kWhole));
  if (others.empty()) return stack;
  QuantisedWeights rest = TRY(quantised_weights(name, others, LastBlock::kWhole));
  for (std::size_t i = 0; i < stack.weights.size(); ++i) stack.weights[i].elsewhere = std::move(rest.weights[i].parts);
  return stack;
}

// Describes the values or the exponents of MXFP4. One byte belongs to `columns` consecutive elements of a row.
struct Mxfp4Bytes {
  const char* suffix;  // appended to the module's name
  std::int64_t columns;
  PackedStorage::Content content;
};

std::vector<WeightPart> mxfp4_parts(const std::vector<LinearPart>& matrices, const Mxfp4Bytes& bytes) {
  std::vector<WeightPart> parts;
  for (const LinearPart& matrix : matrices) {
    const std::int64_t across = matrix.tensor_cols / bytes.columns;
    WeightPart part{.tensor = fmt::format("{}.{}", matrix.tensor, bytes.suffix),
                    .shape = {matrix.tensor_rows, across},
                    .slice = matrix.slice,
                    .storage = PackedStorage{
                        .tensor_shape = {matrix.tensor_rows, across}, .row_stride = across, .content = bytes.content}};
    if (part.slice.dim == 1) {
      part.slice.begin /= bytes.columns;
      part.slice.size /= bytes.columns;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// Adds the bytes of a stack of experts, u8[experts, rows of an expert, bytes of a row].
ir::ValueId add_mxfp4(LayerBuilder& b, const std::string& name, std::int64_t experts,
                      const std::vector<LinearPart>& own, const std::vector<LinearPart>& others,
                      const Mxfp4Bytes& bytes) {
  WeightSpec weight;
  weight.name = name;
  weight.parts = mxfp4_parts(own, bytes);
  weight.elsewhere = mxfp4_parts(others, bytes);
  weight.type.dtype = ir::DType::kUInt8;
  for (const std::int64_t size : {experts, own[0].rows * std::ssize(own) / experts, own[0].cols / bytes.columns})
    weight.type.shape.emplace_back(size);
  return b.add_weight(std::move(weight));
}

QuantisedExperts add_mxfp4_experts(LayerBuilder& b, const std::string& prefix, std::int64_t experts,
                                   const WeightFormat& format, const Matrices& all) {
  const auto& [gate_up, down, other_gate_up, other_down] = all;
  const Mxfp4Bytes values{format.spelling == WeightFormat::Spelling::kMxfp4 ? "weight" : "weight_packed", 2,
                          PackedStorage::Content::kFourBits};
  const Mxfp4Bytes scales{"weight_scale", kMxfp4Block, PackedStorage::Content::kExponents};
  const std::string up_name = prefix + "gate_up_proj";
  const std::string down_name = prefix + "down_proj";
  return {.gate_up = add_mxfp4(b, up_name + ".blocks", experts, *gate_up, *other_gate_up, values),
          .down = add_mxfp4(b, down_name + ".blocks", experts, *down, *other_down, values),
          .more = {add_mxfp4(b, up_name + ".scales", experts, *gate_up, *other_gate_up, scales),
                   add_mxfp4(b, down_name + ".scales", experts, *down, *other_down, scales)},
          .attributes = {{"mxfp4", true}},
          .format = format};
}

// Adds all weights in `stack`. Returns the graph's value for the first weight, and appends the values for the others to
// `more`.
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
  const bool has_blocks = parts.are_separate() && b.options().stored_blocks;
  if (has_blocks) {
    format = set_blocks(b, all);
    if (format.is_unquantised() && !any_has_blocks(b, all)) format = TRY(set_stored_formats(b, all));
    if (format.is_unquantised()) return std::optional<QuantisedExperts>();
  } else if (parts.are_separate()) {
    format = TRY(set_stored_formats(b, all));
  }
  if (format.is_unquantised()) format = set_formats_at_start(b, parts, all);
  if (format.is_unquantised()) return std::optional<QuantisedExperts>();
  if (format.ordered)
    return unimplemented(fmt::format("{}: experts whose columns have an order (desc_act)", gate_up[0].tensor));
  if (format.is_mxfp4() && parts.hidden_size() % kMxfp4Block == 0 && parts.local_size() % kMxfp4Block == 0)
    return std::optional(add_mxfp4_experts(b, prefix, parts.local_experts(), format, all));
  QuantisedWeights up_stack = TRY(stack_of(prefix + "gate_up_proj", gate_up, other_gate_up));
  QuantisedWeights down_stack = TRY(stack_of(prefix + "down_proj", down, other_down));
  const ir::Attributes of_gate_up = up_stack.format.attributes();
  QuantisedExperts experts{.attributes = of_gate_up, .format = format};
  experts.attributes.emplace_back("quantised", true);
  for (const auto& [name, value] : down_stack.format.attributes())
    if (std::ranges::find(of_gate_up, std::pair(name, value)) == of_gate_up.end())
      experts.attributes.emplace_back("down_" + name, value);
  if (format.is_blocks()) experts.attributes.emplace_back("inputs", std::string(rounding_of_inputs(format)));
  experts.gate_up = add_all(b, std::move(up_stack), experts.more);
  experts.down = add_all(b, std::move(down_stack), experts.more);
  return std::optional(std::move(experts));
}

}  // namespace tessera
