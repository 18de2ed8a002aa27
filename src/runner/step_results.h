// Holds the results of forwards in host memory. The device writes them while the host continues. Each forward in flight
// has a slot.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/runner/forward_inputs.h"

namespace tessera {

class StepResults {
 public:
  // The destinations of one forward's results.
  struct Slot {
    std::span<TokenId> sampled;     // [sampled rows]
    std::span<float> logprobs;      // [wanted rows] or empty; the number of rows below is the same
    std::span<TokenId> top_ids;     // [rows × kMaxTopLogprobs]
    std::span<float> top_logprobs;  // [rows × kMaxTopLogprobs]
    int top = 0;                    // number of top tokens that are wanted for each row; if 0, none are downloaded
  };

  // Returns the memory that create() takes, in bytes. `max_rows` is the maximum number of rows with log-probabilities.
  static std::int64_t bytes_needed(int slots, std::int64_t max_requests, std::int64_t max_rows);
  static Result<StepResults> create(Device& device, int slots, std::int64_t max_requests, std::int64_t max_rows);

  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

  // Prepares a slot for a forward whose inputs LocalForwards::check() accepted.
  Slot& begin(int slot, const ForwardInputs& inputs);
  // Returns the results, which are valid until the next begin() for the slot. Call it at most once for each begin(),
  // after the device has written the results.
  StepOutputs finish(int slot);

 private:
  StepResults() = default;

  std::vector<Slot> whole_;  // [slots]: the memory of each slot, at full capacity
  std::vector<Slot> slots_;  // [slots]: the part of `whole_` that the slot's forward uses
  std::unique_ptr<HostAllocation> memory_;
};

}  // namespace tessera
