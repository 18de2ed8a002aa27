#include "tessera/runner/step_results.h"

#include <algorithm>

#include "tessera/device/alignment.h"
#include "tessera/ops/sampling/top_logprobs.h"

namespace tessera {

std::int64_t StepResults::bytes_needed(int slots, std::int64_t max_requests, std::int64_t max_rows) {
  const auto requests = static_cast<std::size_t>(max_requests);
  const auto rows = static_cast<std::size_t>(max_rows);
  const std::size_t tops = rows * kMaxTopLogprobs;
  const std::size_t slot = align_up(requests * sizeof(TokenId)) + align_up(rows * sizeof(float)) +
                           align_up(tops * sizeof(TokenId)) + align_up(tops * sizeof(float));
  return static_cast<std::int64_t>(slot) * slots;
}

Result<StepResults> StepResults::create(Device& device, int slots, std::int64_t max_requests, std::int64_t max_rows) {
  StepResults results;
  const auto requests = static_cast<std::size_t>(max_requests);
  const auto rows = static_cast<std::size_t>(max_rows);
  const std::size_t tops = rows * kMaxTopLogprobs;
  const auto bytes = static_cast<std::size_t>(bytes_needed(slots, max_requests, max_rows));
  results.memory_ = TRY(device.allocate_host(bytes, "results of forwards"));
  std::byte* next = results.memory_->data();
  const auto take = [&]<class T>(std::span<T>& to, std::size_t count) {
    to = {reinterpret_cast<T*>(next), count};
    next += align_up(count * sizeof(T));
  };
  results.whole_.resize(static_cast<std::size_t>(slots));
  results.slots_.resize(static_cast<std::size_t>(slots));
  for (Slot& slot : results.whole_) {
    take(slot.sampled, requests);
    take(slot.logprobs, rows);
    take(slot.top_ids, tops);
    take(slot.top_logprobs, tops);
  }
  return results;
}

StepResults::Slot& StepResults::begin(int slot, const ForwardInputs& inputs) {
  const Slot& whole = whole_[static_cast<std::size_t>(slot)];
  const std::size_t rows = inputs.logprob_targets.size();
  const std::size_t tops = inputs.top_logprobs > 0 ? rows * kMaxTopLogprobs : 0;
  Slot& used = slots_[static_cast<std::size_t>(slot)];
  used = {.sampled = whole.sampled.first(inputs.sampling.size()),
          .logprobs = whole.logprobs.first(rows),
          .top_ids = whole.top_ids.first(tops),
          .top_logprobs = whole.top_logprobs.first(tops),
          .top = inputs.top_logprobs};
  return used;
}

// The device writes kMaxTopLogprobs tokens for each row. If fewer than kMaxTopLogprobs are wanted, finish() moves the
// first `top` tokens of each row directly behind the tokens of the row before, so that the list has no gaps.
StepOutputs StepResults::finish(int slot) {
  const Slot& used = slots_[static_cast<std::size_t>(slot)];
  const auto top = static_cast<std::size_t>(used.top);
  const std::size_t rows = used.top_ids.size() / kMaxTopLogprobs;
  for (std::size_t r = 1; r < rows && top < kMaxTopLogprobs; ++r) {
    std::copy_n(used.top_ids.begin() + static_cast<std::ptrdiff_t>(r * kMaxTopLogprobs), top,
                used.top_ids.begin() + static_cast<std::ptrdiff_t>(r * top));
    std::copy_n(used.top_logprobs.begin() + static_cast<std::ptrdiff_t>(r * kMaxTopLogprobs), top,
                used.top_logprobs.begin() + static_cast<std::ptrdiff_t>(r * top));
  }
  return {.sampled = used.sampled,
          .logprobs = used.logprobs,
          .top_ids = used.top_ids.first(rows * top),
          .top_logprobs = used.top_logprobs.first(rows * top)};
}

}  // namespace tessera
