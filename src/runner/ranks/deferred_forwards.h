// Forwards of a pipeline that rank 0 has sent to the other ranks, and has yet to run itself. On a host a forward runs
// while it is enqueued, and rank 0, which belongs to the last stage, would wait in it for the stages before: nothing
// could be sent to them meanwhile. So it sends a forward when it is submitted, and runs its own part when it is
// collected, or before an order to all ranks. By then who submitted it has moved on: what is kept is the message.
//
// Allocates nothing once as many forwards as large were kept. Threads: one owns it.
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

  // Every forward that is sent, or the tables of later ones cannot be read. `logits` and `hidden_states` are filled in
  // when it runs.
  void push(std::span<const std::byte> message, const ForwardInputs& inputs);
  // The oldest one, which is taken out; valid until the next call. The error that fail() left, or kDeviceLost.
  // Precondition: size() > 0.
  Result<ForwardInputs> take();
  // That of the forward that take() gave last.
  const Decision& decision() const { return received_.decision(); }
  // All that are left are lost: take() returns `why` for each.
  void fail(const Status& why);

 private:
  struct Entry {
    std::vector<std::byte> message;
    std::span<float> logits;
    std::span<float> hidden_states;
    Status failed;
  };
  std::vector<Entry> entries_;  // a ring
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::vector<std::byte> taken_;  // the message of what take() gave
  ReceivedForward received_;
};

}  // namespace tessera
