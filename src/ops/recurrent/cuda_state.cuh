// Device functions for operators with a state for each sequence. They read the operator's plan (state_plan.h) in device
// memory.
#pragma once

#include <cstdint>

#include "tessera/ops/contract/state_plan.h"

namespace tessera::cuda {

// One request of a forward.
struct StateRequest {
  int first_row;
  int num_rows;
  int kept_rows;  // number of rows, from the first on, that change the state; later rows are drafts
  int accepted;   // number of drafts in the slot over which the state is advanced before the first row
  int slot;
  int position;         // position of the first row in the sequence
  bool anew;            // the state starts from zeros
  int checkpoint_rows;  // after how many rows the state is also stored in checkpoint_slot; 0: never
  int checkpoint_slot;
};

// Returns the number of requests whose rows all lie among the first `rows` rows of the forward. If a wrong plan has a
// request with later rows, this request and all after it are left out, so that nothing is written out of bounds (as in
// count_requests(), for the CPU). Every thread computes the number by itself. With a correct plan the loop ends at
// once.
__device__ inline int count_requests_on_device(const StateMetadata& metadata, std::int64_t rows) {
  int count = *metadata.lengths.num_requests;
  while (count > 0 && metadata.lengths.query_starts[count] > rows) --count;
  return count;
}

__device__ inline StateRequest state_request(const StateMetadata& metadata, int request) {
  const int first = metadata.lengths.query_starts[request];
  const int rows = metadata.lengths.query_starts[request + 1] - first;
  const int slot = metadata.slots[request];
  const bool anew = slot == 0 || metadata.lengths.kv_lens[request] == rows;
  return {.first_row = first,
          .num_rows = rows,
          .kept_rows = rows - metadata.drafts[request],
          .accepted = anew ? 0 : metadata.accepted[request],
          .slot = slot,
          .position = metadata.lengths.kv_lens[request] - rows,
          .anew = anew,
          .checkpoint_rows = metadata.checkpoint_rows[request],
          .checkpoint_slot = metadata.checkpoint_slots[request]};
}

// Returns the request that the row belongs to. Precondition: row < query_starts[num_requests].
__device__ inline int request_of_row(const StateMetadata& metadata, int num_requests, int row) {
  int low = 0;
  int high = num_requests;  // the request is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (metadata.lengths.query_starts[middle] <= row ? low : high) = middle;
  }
  return low;
}

}  // namespace tessera::cuda
