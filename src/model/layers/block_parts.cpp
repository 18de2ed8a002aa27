#include "tessera/model/layers/block_parts.h"

#include <cstdint>
#include <utility>

namespace tessera {

QuantisedWeights block_weights(const std::string& name, std::span<const LinearPart> parts) {
  const BlockTypeInfo& type = block_type_info(parts[0].format.blocks);
  const auto bytes_of = [&](std::int64_t cols) { return cols / type.elements * type.bytes; };
  WeightSpec weight{.name = name + ".weight",
                    .type = {ir::DType::kUInt8, {sum_of_rows(parts), bytes_of(parts[0].cols)}}};
  for (const LinearPart& part : parts) {
    TensorSlice slice = part.slice;
    if (part.slice.dim == 1) slice = {.dim = 1, .begin = bytes_of(slice.begin), .size = bytes_of(slice.size)};
    weight.parts.push_back(
        {.tensor = matrix_tensor(part),
         .shape = {part.tensor_rows, bytes_of(part.tensor_cols)},
         .slice = slice,
         .storage = BlockStorage{.type = type.type, .rows = part.tensor_rows, .cols = part.tensor_cols}});
  }
  return {.format = {.values = QuantisedFormat::Values::kBlocks, .blocks = type.type}, .weights = {std::move(weight)}};
}

}  // namespace tessera
