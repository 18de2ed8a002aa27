#include "tessera/runner/dummy_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace tessera {
namespace {

// Adds a CacheGroupBatch for each of `groups`. A paged group gets `paged`. In state groups all rows get slot 0, which
// belongs to no request.
void assign_groups(ForwardBatch& batch, const CacheGroupBatch& paged, std::span<const ir::CacheGroup> groups) {
  CacheGroupBatch states = paged;
  std::ranges::fill(states.slots, SlotId(0));
  for (const ir::CacheGroup& group : groups)
    batch.groups.push_back(group.kind == ir::CacheGroup::Kind::kState ? states : paged);
}

}  // namespace

void want_all_rows(ForwardBatch& batch) {
  batch.wanted_rows.resize(batch.input_ids.size());
  std::iota(batch.wanted_rows.begin(), batch.wanted_rows.end(), 0);
}

ForwardBatch dummy_batch(std::int64_t size, bool decode, const RunnerOptions& options,
                         std::span<const ir::CacheGroup> groups, std::int64_t vocab_size) {
  ForwardBatch batch;
  CacheGroupBatch paged;
  std::vector<std::vector<PageId>> tables;
  const std::int64_t longest = decode ? 1 : options.context_length;
  const std::int64_t prefix =
      decode ? std::max<std::int64_t>(std::min(options.page_size, options.context_length) - longest, 0) : 0;
  const std::int64_t tokens = std::min(size, options.max_requests * longest);
  for (std::int64_t left = tokens; left > 0;) {
    const std::int64_t query = std::min(left, longest);
    for (std::int64_t i = 0; i < query; ++i) batch.positions.push_back(static_cast<std::int32_t>(prefix + i));
    batch.query_lens.push_back(static_cast<std::int32_t>(query));
    batch.kv_lens.push_back(static_cast<std::int32_t>(prefix + query));
    batch.wanted_rows.push_back(static_cast<std::int32_t>(batch.positions.size()) - 1);
    tables.emplace_back(static_cast<std::size_t>(pages_for(prefix + query, options.page_size)), PageId(0));
    left -= query;
  }
  for (std::int64_t i = 0; i < tokens; ++i) {
    batch.input_ids.emplace_back(static_cast<std::int32_t>(i % vocab_size));
    paged.slots.emplace_back(static_cast<std::int32_t>(options.page_size > 1 ? 1 + i % (options.page_size - 1) : 0));
  }
  batch.input_rows.assign(static_cast<std::size_t>(tokens), -1);
  paged.own(std::move(tables));
  assign_groups(batch, paged, groups);
  return batch;
}

std::optional<ForwardBatch> page_batch(std::int64_t size, const RunnerOptions& options,
                                       std::span<const ir::CacheGroup> groups) {
  const std::int64_t most_rows = std::min(options.page_size, options.context_length);
  const std::int64_t requests = (size + most_rows - 1) / most_rows;
  if (requests > options.max_requests || size > options.max_tokens || size / requests < 2) return std::nullopt;
  ForwardBatch batch;
  CacheGroupBatch paged;
  for (std::int64_t b = 0; b < requests; ++b) {
    const std::int64_t rows = size / requests + (b < size % requests ? 1 : 0);
    for (std::int64_t i = 0; i < rows; ++i) {
      batch.input_ids.emplace_back(static_cast<std::int32_t>(i % 2));
      batch.positions.push_back(static_cast<std::int32_t>(i));
      paged.slots.emplace_back(static_cast<std::int32_t>(i));
    }
    batch.query_lens.push_back(static_cast<std::int32_t>(rows));
    batch.kv_lens.push_back(static_cast<std::int32_t>(rows));
  }
  batch.input_rows.assign(static_cast<std::size_t>(size), -1);
  want_all_rows(batch);
  paged.own(std::vector(static_cast<std::size_t>(requests), std::vector{PageId(0)}));
  assign_groups(batch, paged, groups);
  return batch;
}

}  // namespace tessera
