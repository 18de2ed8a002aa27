// The kinds of work that a request needs before and after it runs on the engine. Each kind has a pool (text_pools.h). A
// thread of a pool takes on only the kinds that its pool allows.
//
// The kind of work that a body needs is unknown until the body is read. The body's size decides whether it is read in
// the pool of small or of large texts. If the body turns out to need another kind of work, reading stops with an error
// and begins again in the pool for that kind:
//
//   TextPoolScope scope(TextWork::kSmall);
//   made = prepare(…);                            // calls TRY(take_on(TextWork::kImages)) before it decodes an image
//   if (scope.moves_to()) …                       // ignore `made`, and begin again in that pool
//
// A thread without a scope accepts all work. Threads: a scope is used only by the thread that made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tessera/server/api_result.h"

namespace tessera {

enum class TextWork : std::uint8_t {
  kSmall,     // reading up to kSmallTextBytes: some milliseconds
  kLarge,     // longer texts, compressed bodies, and templates from clients: up to seconds
  kImages,    // fetching, decoding and resizing images, with all other work of the request
  kGrammars,  // compiling grammars, with the texts of the request: up to kMaxCompileSeconds
  kAnswers,   // building large bodies of answers
};
inline constexpr std::size_t kNumTextWorks = 5;

// The limit of kSmall, for a body and for the sum of all texts that are tokenised for it.
inline constexpr std::size_t kSmallTextBytes = 64 * 1024;

class TextPoolScope {
 public:
  explicit TextPoolScope(TextWork pool);
  ~TextPoolScope();
  TextPoolScope(const TextPoolScope&) = delete;
  TextPoolScope& operator=(const TextPoolScope&) = delete;

  // Returns the pool that must do the work that this thread's pool refused; nothing if no work was refused.
  std::optional<TextWork> moves_to() const { return moves_to_; }

 private:
  friend ApiStatus take_on(TextWork work);
  friend ApiStatus take_on_text(std::size_t bytes);
  ApiStatus take_on(TextWork work);

  TextWork pool_;
  std::size_t text_bytes_ = 0;
  std::optional<TextWork> moves_to_;
  TextPoolScope* outer_;
};

// Call it before work of this kind begins. Returns an error if the thread's pool must leave the work to another pool.
ApiStatus take_on(TextWork work);
// Call it before a text of `bytes` bytes is tokenised. Adds `bytes` to the total of the thread's TextPoolScope. If this
// total is greater than kSmallTextBytes, returns the result of take_on(TextWork::kLarge).
ApiStatus take_on_text(std::size_t bytes);

}  // namespace tessera
