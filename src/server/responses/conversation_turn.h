// A conversation as a chain of turns. Each turn has one response's input items and output items. Turns are shared: a
// later turn keeps the turns before it, even after their responses were deleted.
//
// Threads: a turn does not change, so any thread may read it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tessera/server/memory_budget.h"

namespace tessera {

struct ConversationTurn {
  std::string input;   // a JSON list of items
  std::string output;  // a JSON list of items
  // The previous turn; null if the conversation begins here. Only the destructor changes it.
  mutable std::shared_ptr<const ConversationTurn> before{};
  MemoryCharge charge{};

  ConversationTurn(std::string its_input, std::string its_output, std::shared_ptr<const ConversationTurn> its_before)
      : input(std::move(its_input)), output(std::move(its_output)), before(std::move(its_before)) {}
  ConversationTurn(const ConversationTurn&) = delete;
  ConversationTurn& operator=(const ConversationTurn&) = delete;
  // Destroys the turns before this one in a loop, because recursion over a long conversation could overflow the stack.
  ~ConversationTurn() {
    std::shared_ptr<const ConversationTurn> next = std::move(before);
    while (next != nullptr && next.use_count() == 1) {
      std::shared_ptr<const ConversationTurn> earlier = std::move(next->before);
      next = std::move(earlier);
    }
  }

  std::int64_t bytes() const { return std::ssize(input) + std::ssize(output) + kBytes; }

 private:
  static constexpr std::int64_t kBytes = 256;  // bytes that a turn takes besides its texts
};

}  // namespace tessera
