#include "tessera/model/layers/block_parts.h"

#include <cstdint>

#include "tessera/ops/quantised/blocks/block_codes.h"

namespace tessera {
namespace {

using Content = BlockStorage::Content;

// Returns the weight that joins the `content` of all parts: their blocks, their codes or their scales.
WeightSpec content_of(const std::string& name, std::span<const LinearPart> parts, Content content) {
  const BlockTypeInfo& type = block_type_info(parts[0].format.blocks);
  const ir::DType dtype = content == Content::kScales ? ir::DType::kFloat16 : ir::DType::kUInt8;
  WeightSpec weight{.name = name};
  for (const LinearPart& part : parts) {
    const BlockStorage storage{
        .type = type.type, .rows = part.tensor_rows, .cols = part.tensor_cols, .content = content};
    const auto elements_of = [&](std::int64_t cols) { return cols * storage.per_block() / type.elements; };
    if (weight.parts.empty()) weight.type = {dtype, {sum_of_rows(parts), elements_of(part.cols)}};
    TensorSlice slice = part.slice;
    if (part.slice.dim == 1) slice = {.dim = 1, .begin = elements_of(slice.begin), .size = elements_of(slice.size)};
    weight.parts.push_back({.tensor = matrix_tensor(part),
                            .shape = {part.tensor_rows, elements_of(part.tensor_cols)},
                            .slice = slice,
                            .storage = storage});
  }
  return weight;
}

}  // namespace

QuantisedWeights block_weights(const std::string& name, std::span<const LinearPart> parts) {
  return {.format = {.values = QuantisedFormat::Values::kBlocks, .blocks = parts[0].format.blocks},
          .weights = {content_of(name + ".weight", parts, Content::kBlocks)}};
}

QuantisedWeights block_code_weights(const std::string& name, std::span<const LinearPart> parts) {
  return {.format = *block_codes_format(parts[0].format.blocks),
          .weights = {content_of(name + ".weight", parts, Content::kCodes),
                      content_of(name + ".scales", parts, Content::kScales)}};
}

}  // namespace tessera
