// Keeps the lengths of a forward's requests in device memory at fixed addresses. Plans pass these addresses to kernels
// that process a forward request by request. The lengths lie in the step buffer (step_buffer.h), so that the single
// upload of a step includes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ops/contract/forward_batch.h"
#include "tessera/ops/contract/step_buffer.h"

namespace tessera {

// Pointers to device memory. Request b has the rows query_starts[b] … query_starts[b + 1] - 1 of the forward. These
// rows stand at the positions kv_lens[b] - (number of rows) … kv_lens[b] - 1.
struct RequestLengths {
  const std::int32_t* num_requests = nullptr;  // [1]: number of requests; other arrays' entries past it are padding
  const std::int32_t* query_starts = nullptr;  // [max_requests + 1]: each request's first row, then the row count
  const std::int32_t* kv_lens = nullptr;       // [max_requests]
};

class BatchLengths {
 public:
  // Reserves space in `step`. `step` outlives this object.
  BatchLengths(const PlanLimits& limits, StepBuffer& step);
  static std::int64_t bytes_needed(const PlanLimits& limits);

  // Writes the batch's lengths to the step buffer. Preconditions: the batch has at most limits.max_requests requests,
  // and as many kv_lens as query_lens. Allocates nothing.
  void write(const ForwardBatch& batch);
  RequestLengths lengths() const;

 private:
  std::int64_t max_requests_;
  StepBuffer* step_;
  std::size_t offset_;  // i32: num_requests, query_starts [max_requests + 1], kv_lens [max_requests]
};

}  // namespace tessera
