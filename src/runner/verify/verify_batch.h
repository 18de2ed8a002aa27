// Makes the batches on which verify() compares forwards. Their requests have different lengths, cached prefixes, and
// pages in each cache group. For models with three-dimensional rotary positions, tokens have positions like those of
// images.
#pragma once

#include <cstddef>
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
  // For each cache group, the ids of the requests' pages. If pools are large enough, no id is in two groups, so a
  // kernel that reads another group's page table finds pages outside the batch.
  std::vector<PageRange> pages;
  std::vector<float> embeddings{};  // the embeddings that the batch writes
  RopeAxes rope_positions{};
};

struct VerifyModel {
  const RunnerOptions& options;
  std::span<const ir::CacheGroup> groups;
  std::int64_t row_values = 0;     // number of values in an embedding
  TokenId poisoned_id{};           // the vocabulary's last id, whose embedding row must reach no result
  bool several_rows_each = false;  // for a prefill of two or more tokens: no request has a single row
  bool last_rows_wanted = false;   // only the last row of each request is wanted; otherwise every row is
  // Maximum number of drafts of a request in a decode. If it is above 0, the batch sets ForwardBatch::accepted_drafts.
  std::int64_t max_drafts = 0;
  std::int64_t adapter_slots = 0;  // if above 0, requests take slots 0, 1, … and then none, in turn
};

// Returns whether `size` tokens can be divided into requests of 2 to `context` tokens. If they cannot, no prefill of
// this size uses a full graph.
bool can_have_several_rows_each(std::int64_t size, std::int64_t context);

// Makes a prefill of `size` tokens, or a decode of `size` rows. Returns kResourceExhausted if a pool is too small, and
// kInvalidArgument if each request must have several rows and the tokens cannot be divided in this way.
Result<VerifyBatch> make_verify_batch(const VerifyModel& model, std::int64_t size, bool decode);

// Returns `bytes` bytes of pseudo-random finite numbers of either sign, with exponents well below the maximum. Every
// call returns the same bytes.
std::vector<std::byte> small_numbers(ir::DType dtype, std::size_t bytes);

}  // namespace tessera
