#include "tessera/runner/row_requests.h"

namespace tessera {

const ForwardBatch& RowRequests::of(const ForwardBatch& batch) {
  rows_.input_ids = batch.input_ids;
  rows_.positions = batch.positions;
  rows_.wanted_rows = batch.wanted_rows;
  rows_.adapter_slots = batch.adapter_slots;
  rows_.query_lens.clear();
  rows_.kv_lens.clear();
  rows_.groups.resize(batch.groups.size());
  for (CacheGroupBatch& group : rows_.groups) group.page_tables.clear();
  for (std::size_t b = 0; b < batch.query_lens.size(); ++b) {
    const std::int32_t drafts = batch.draft_lens[b];
    const std::int32_t requests = drafts > 0 && batch.query_lens[b] == 1 + drafts ? 1 + drafts : 1;
    const std::int32_t rows = batch.query_lens[b] / requests;  // rows of each request
    for (std::int32_t left = requests - 1; left >= 0; --left) {
      rows_.query_lens.push_back(rows);
      rows_.kv_lens.push_back(batch.kv_lens[b] - left);
    }
    for (std::size_t g = 0; g < batch.groups.size(); ++g)
      rows_.groups[g].page_tables.insert(rows_.groups[g].page_tables.end(), static_cast<std::size_t>(requests),
                                         batch.groups[g].page_tables[b]);
  }
  for (std::size_t g = 0; g < batch.groups.size(); ++g) rows_.groups[g].slots = batch.groups[g].slots;
  return rows_;
}

}  // namespace tessera
