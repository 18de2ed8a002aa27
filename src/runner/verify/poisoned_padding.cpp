#include "tessera/runner/verify/poisoned_padding.h"

#include <algorithm>
#include <cstdint>

#include "tessera/compile/isolated_memory.h"
#include "tessera/ops/embedding/embedding.h"

namespace tessera {

Result<TokenId> PoisonedPadding::poison() {
  const ModelGraphs& graphs = parts_.model.graphs;
  if (graphs.own_layers.begin > 0)  // only the first pipeline stage embeds the ids
    return TokenId(static_cast<std::int32_t>(parts_.model.vocab_size - 1));
  const std::vector<ir::Node>& nodes = graphs.body.nodes;
  const auto embedding = std::ranges::find(nodes, kEmbedding.name, &ir::Node::op);
  if (embedding == nodes.end()) return internal_error("the model embeds no ids");
  const ir::Value* table = &graphs.body.value(embedding->operands[1]);
  const std::int64_t rows = *table->type.shape[0].constant();
  const std::int64_t all = embedding->attribute_or("table_rows", rows);
  const TokenId id(static_cast<std::int32_t>(all - 1));
  if (embedding->attribute_or("first_row", std::int64_t{0}) + rows < all) return id;
  const std::size_t row_bytes =
      static_cast<std::size_t>(*table->type.shape[1].constant()) * ir::dtype_size(table->type.dtype);
  row_ = parts_.externals().find(table->name, {}) + static_cast<std::size_t>(rows - 1) * row_bytes;
  saved_.resize(row_bytes);
  TRY(parts_.stream().download(saved_.data(), row_, row_bytes));
  TRY(parts_.stream().synchronize());
  TRY(parts_.stream().fill(row_, IsolatedMemory::kPoison, row_bytes));
  return id;
}

Status PoisonedPadding::restore() {
  if (saved_.empty()) return ok_status();
  TRY(parts_.stream().upload(row_, saved_.data(), saved_.size()));
  return parts_.stream().synchronize();
}

}  // namespace tessera
