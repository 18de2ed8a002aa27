// The batches that verify() compares forwards on: uneven requests with cached prefixes, and their pages in each group.
// Their tokens lie as those of images do, for models that rotate by time, height and width.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/memory/group_pages.h"
#include "tessera/runner/memory/input_table.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

struct VerifyBatch {
  ForwardBatch batch;
  // [cache groups]: ids of the requests' pages. No id is in two groups where pools are large enough, so that a kernel
  // that reads another group's page table finds pages that are not the batch's.
  std::vector<PageRange> pages;
  std::vector<float> embeddings{};  // that the batch writes
  RopeAxes rope_positions{};
};

struct VerifyModel {
  const RunnerOptions& options;
  std::span<const ir::CacheGroup> groups;
  std::int64_t row_values = 0;     // of an embedding
  TokenId poisoned_id{};           // the vocabulary's last; its row of the table must reach no result
  bool several_rows_each = false;  // of a prefill of two tokens or more: no request of a single row
  bool last_rows_wanted = false;   // of each request the last row alone; else every row
};

// `size` tokens, or as a decode so many requests. kResourceExhausted where a pool is too small.
Result<VerifyBatch> make_verify_batch(const VerifyModel& model, std::int64_t size, bool decode);

}  // namespace tessera
