// What is being done around an operator, for operators that do something else meanwhile: a kernel that must not choose
// algorithms while it is captured, say. States nest. A Scope ends with its block, so that an error leaves none behind.
// Outside every scope a forward is a plain one.
//
//   const ForwardStates::Scope capturing(states, ForwardState::kCapturing);
//   …
//   if (in_state(args.context, ForwardState::kCapturing)) …     // in an operator's bind() or enqueue()
//
// Threads: the one that owns the runner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

enum class ForwardState : std::uint8_t {
  kPiecewise,  // a forward runs, or is captured, that is cut into pieces
  kCompiling,  // programs are compiled, or kernels bound for a bucket
  kCapturing,  // a stream records
  kFull,       // what is recorded is a whole forward, for batches whose requests have several rows each
};

class ForwardStates {
 public:
  // Whether a scope of the state is open.
  bool in(ForwardState state) const { return open_[static_cast<std::size_t>(state)] > 0; }

  class [[nodiscard]] Scope {
   public:
    // `states` outlives the scope; null: nobody asks.
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
  std::array<int, 4> open_{};  // scopes of each state
};

// False without states, as outside every scope.
inline bool in_state(const ForwardContext& context, ForwardState state) {
  return context.states != nullptr && context.states->in(state);
}

}  // namespace tessera
