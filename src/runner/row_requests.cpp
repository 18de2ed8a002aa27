#include "tessera/runner/row_requests.h"

namespace tessera {

const ForwardBatch& RowRequests::of(const ForwardBatch& batch) {
  rows_.input_ids = batch.input_ids;
  rows_.positions = batch.positions;
  rows_.wanted_rows = batch.wanted_rows;
  rows_.adapter_slots = batch.adapter_slots;
  rows_.query_lens.assign(batch.input_ids.size(), 1);
  rows_.kv_lens.clear();
  rows_.groups.resize(batch.groups.size());
  for (CacheGroupBatch& group : rows_.groups) group.page_tables.clear();
  for (std::size_t b = 0; b < batch.query_lens.size(); ++b) {
    const std::int32_t rows = batch.query_lens[b];
    for (std::int32_t row = 1; row <= rows; ++row) rows_.kv_lens.push_back(batch.kv_lens[b] - rows + row);
    for (std::size_t g = 0; g < batch.groups.size(); ++g)
      rows_.groups[g].page_tables.insert(rows_.groups[g].page_tables.end(), static_cast<std::size_t>(rows),
                                         batch.groups[g].page_tables[b]);
  }
  for (std::size_t g = 0; g < batch.groups.size(); ++g) rows_.groups[g].slots = batch.groups[g].slots;
  return rows_;
}

}  // namespace tessera
