// The states in which an operator may be bound or run. Some operators behave differently in some states. For example, a
// kernel must not choose algorithms while it is captured. Several states may be open at once. A Scope ends at the end
// of its C++ block, so that an error leaves no state open. If no state is open, forwards run eagerly and are not cut
// into pieces (piecewise/stitching.h).
//
//   const ForwardStates::Scope capturing(states, ForwardState::kCapturing);
//   …
//   if (in_state(args.context, ForwardState::kCapturing)) …     // in an operator's bind() or enqueue()
//
// Only the thread that owns the runner may use the states.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

enum class ForwardState : std::uint8_t {
  kPiecewise,  // a forward that is cut into pieces runs or is captured
  kCompiling,  // programs are compiled, or kernels are bound for a bucket
  kCapturing,  // a stream is recording
  kFull,       // a whole forward is recorded; its replays serve batches in which every request has several rows
};

class ForwardStates {
 public:
  // Returns whether a scope of the state is open.
  bool in(ForwardState state) const { return open_[static_cast<std::size_t>(state)] > 0; }

  class [[nodiscard]] Scope {
   public:
    // Opens the scope. `states` outlives it. If `states` is null, the scope does nothing.
    Scope(ForwardStates* states, ForwardState state)
        : open_(states == nullptr ? nullptr : &states->open_[static_cast<std::size_t>(state)]) {
      if (open_ != nullptr) ++*open_;
    }
    ~Scope() {
      if (open_ != nullptr) --*open_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    int* open_;
  };

 private:
  std::array<int, 4> open_{};  // number of open scopes of each state
};

// Returns whether a scope of the state is open; false if the context has no states.
inline bool in_state(const ForwardContext& context, ForwardState state) {
  return context.states != nullptr && context.states->in(state);
}

}  // namespace tessera
