#include "tessera/engine/schedule/batch_rows.h"

#include <iterator>
#include <span>
#include <vector>

namespace tessera {
namespace {

// Appends plain rotary positions to `rope_positions` until the batch's first `rows` rows have rotary positions. A plain
// position equals the row's position in the text. Rows that already have rotary positions always come first.
void use_plain(const ForwardBatch& batch, std::size_t rows, RopeAxes& rope_positions) {
  for (std::vector<std::int32_t>& axis : rope_positions)
    axis.insert(axis.end(), batch.positions.begin() + std::ssize(axis),
                batch.positions.begin() + static_cast<std::ptrdiff_t>(rows));
}

void append_pages(const SequenceCache& held, std::int64_t first, std::int64_t kv_len, const CacheManager& cache,
                  ForwardBatch& batch) {
  const std::int64_t page_size = cache.page_size();
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    CacheGroupBatch& group = batch.groups[g];
    const GroupPages& own = held.groups[g];
    const bool one_slot = cache.group(g).is_state();
    for (std::int64_t position = first; position < kv_len; ++position) {
      const std::int32_t page = own.pages[static_cast<std::size_t>(one_slot ? 0 : position / page_size)].value();
      group.slots.emplace_back(one_slot ? page : static_cast<std::int32_t>(page * page_size + position % page_size));
    }
    const std::int64_t used = one_slot ? 1 : cache.pages_for(kv_len);
    group.page_tables.push_back({.pages = std::span(own.pages).first(static_cast<std::size_t>(used)),
                                 .first_held = own.first_held,
                                 .number = own.number});
  }
}

}  // namespace

void clear_rows(std::size_t num_cache_groups, ForwardBatch& batch, RopeAxes& rope_positions) {
  batch.input_ids.clear();
  batch.input_rows.clear();
  batch.positions.clear();
  batch.query_lens.clear();
  batch.kv_lens.clear();
  batch.wanted_rows.clear();
  batch.embedding_rows.clear();
  batch.draft_lens.clear();
  batch.accepted_drafts.clear();
  batch.adapter_slots.clear();
  batch.embedding_writes.clear();
  batch.slot_copies.clear();
  batch.checkpoints.clear();
  for (std::vector<std::int32_t>& axis : rope_positions) axis.clear();
  batch.groups.resize(num_cache_groups);
  for (CacheGroupBatch& group : batch.groups) {
    group.slots.clear();
    group.page_tables.clear();
  }
}

void append_rows(const Sequence& sequence, std::int64_t first, std::int64_t count, const CacheManager& cache,
                 ForwardBatch& batch, RopeAxes& rope_positions) {
  if (sequence.rope) {
    use_plain(batch, batch.positions.size(), rope_positions);
    sequence.rope->append(first, count, rope_positions);
  }
  for (std::int64_t position = first; position < first + count; ++position)
    batch.positions.push_back(static_cast<std::int32_t>(position));
  batch.query_lens.push_back(static_cast<std::int32_t>(count));
  batch.kv_lens.push_back(static_cast<std::int32_t>(first + count));
  append_pages(sequence.cache, first, first + count, cache, batch);
}

void finish_rows(const ForwardBatch& batch, RopeAxes& rope_positions) {
  if (!rope_positions[0].empty()) use_plain(batch, batch.positions.size(), rope_positions);
}

}  // namespace tessera
