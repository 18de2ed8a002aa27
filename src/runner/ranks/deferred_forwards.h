// Holds forwards that rank 0 has sent to the other ranks but has not run itself yet (steps/host_pipeline.cpp). The
// spans in the inputs of such a forward are no longer valid when rank 0 runs it, so this class keeps the packed
// message.
//
// Allocates memory only if a forward is larger than all earlier ones, or if more forwards are held than before.
// Threads: one thread owns it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/ranks/rank_forward.h"

namespace tessera {

class DeferredForwards {
 public:
  int size() const { return static_cast<int>(count_); }

  // Adds a forward. Every sent forward must be added, because later messages refer to the page tables of earlier ones.
  // `logits` and `hidden_states` of the inputs are filled in when the forward runs.
  void push(std::span<const std::byte> message, const ForwardInputs& inputs);
  // Removes the oldest forward and returns its inputs, which are valid until the next call. Returns the error of fail()
  // for a forward that fail() has marked, and kDeviceLost if the message cannot be read. Precondition: size() > 0.
  Result<ForwardInputs> take();
  // Returns the decision of the forward that take() returned last.
  const Decision& decision() const { return received_.decision(); }
  // Marks all remaining forwards as failed: take() returns `why` for each of them.
  void fail(const Status& why);

 private:
  struct Entry {
    std::vector<std::byte> message;
    std::span<float> logits;
    std::span<float> hidden_states;
    Status failed;
  };
  std::vector<Entry> entries_;  // a ring buffer
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::vector<std::byte> taken_;  // the message of the forward that take() returned last
  ReceivedForward received_;
};

}  // namespace tessera
