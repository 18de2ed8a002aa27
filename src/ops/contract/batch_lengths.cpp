#include "tessera/ops/contract/batch_lengths.h"

#include "tessera/device/alignment.h"

namespace tessera {
namespace {

std::int64_t unaligned_bytes(std::int64_t max_requests) {
  return (2 * max_requests + 2) * static_cast<std::int64_t>(sizeof(std::int32_t));
}

}  // namespace

BatchLengths::BatchLengths(const PlanLimits& limits, StepBuffer& step)
    : max_requests_(limits.max_requests),
      step_(&step),
      offset_(step.reserve(static_cast<std::size_t>(unaligned_bytes(limits.max_requests)))) {}

std::int64_t BatchLengths::bytes_needed(const PlanLimits& limits) {
  return align_up(unaligned_bytes(limits.max_requests));
}

void BatchLengths::write(const ForwardBatch& batch) {
  auto* const num_requests = reinterpret_cast<std::int32_t*>(step_->host(offset_));
  std::int32_t* const query_starts = num_requests + 1;
  std::int32_t* const kv_lens = query_starts + max_requests_ + 1;
  std::int32_t query_start = 0;
  for (std::size_t b = 0; b < batch.query_lens.size(); ++b) {
    query_starts[b] = query_start;
    query_start += batch.query_lens[b];
    kv_lens[b] = batch.kv_lens[b];
  }
  query_starts[batch.query_lens.size()] = query_start;
  *num_requests = static_cast<std::int32_t>(batch.num_requests());
  step_->written(offset_, static_cast<std::size_t>(unaligned_bytes(max_requests_)));
}

RequestLengths BatchLengths::lengths() const {
  const auto* const first = reinterpret_cast<const std::int32_t*>(step_->device_address(offset_).raw());
  return {.num_requests = first, .query_starts = first + 1, .kv_lens = first + 2 + max_requests_};
}

}  // namespace tessera
