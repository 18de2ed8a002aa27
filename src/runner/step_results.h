// What forwards leave on the host: memory that the device writes while the host goes on, a slot for each in flight.
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
  // Where one forward's results go.
  struct Slot {
    std::span<TokenId> sampled;     // [sampled rows]
    std::span<float> logprobs;      // [wanted rows, or none], as are the rows of the next two
    std::span<TokenId> top_ids;     // [rows × kMaxTopLogprobs]
    std::span<float> top_logprobs;  // [rows × kMaxTopLogprobs]
    int top = 0;                    // of those, how many are wanted; 0: none is downloaded
  };

  // `max_rows` are those with log-probabilities.
  static std::int64_t bytes_needed(int slots, std::int64_t max_requests, std::int64_t max_rows);
  static Result<StepResults> create(Device& device, int slots, std::int64_t max_requests, std::int64_t max_rows);

  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

  // Makes a slot ready for a forward that check() accepted.
  Slot& begin(int slot, const ForwardInputs& inputs);
  // Once the device has written it: what the caller sees, valid until the slot begins again. At most once.
  StepOutputs finish(int slot);

 private:
  StepResults() = default;

  std::vector<Slot> whole_;  // [slots]: all the room there is
  std::vector<Slot> slots_;  // [slots]: what is in use
  std::unique_ptr<HostAllocation> memory_;
};

}  // namespace tessera
