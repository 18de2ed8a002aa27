// Kinds of work that requests bring before the engine has them and after, each of which has a pool (text_pools.h), and
// what the pool of the calling thread takes on.
//
// Nobody knows what a body asks for before it is read. It is read in the pool of small or of large texts, by its size,
// and where that comes to work of another kind the reading ends with an error and begins anew in the other pool:
//
//   TextPoolScope scope(TextWork::kSmall);
//   made = prepare(…);                            // calls TRY(take_on(TextWork::kImages)) before it decodes an image
//   if (scope.moves_to()) …                       // again, in that pool; `made` has no meaning
//
// A thread without a scope takes on everything. Threads: a scope is its thread's alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tessera/server/api_result.h"

namespace tessera {

enum class TextWork : std::uint8_t {
  kSmall,     // reading up to kSmallTextBytes: some milliseconds
  kLarge,     // longer texts, compressed bodies, and templates that clients bring: up to seconds
  kImages,    // fetching, decoding and resizing, with everything else that its request needs
  kGrammars,  // compiling, with the texts of its request: up to kMaxCompileSeconds
  kAnswers,   // building large bodies of answers
};
inline constexpr std::size_t kNumTextWorks = 5;

// Of a body, and of all texts together that are tokenised for it.
inline constexpr std::size_t kSmallTextBytes = 64 * 1024;

class TextPoolScope {
 public:
  explicit TextPoolScope(TextWork pool);
  ~TextPoolScope();
  TextPoolScope(const TextPoolScope&) = delete;
  TextPoolScope& operator=(const TextPoolScope&) = delete;

  // The pool that takes on what this one did not; none: nothing came.
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

// Called before work of that kind begins. An error where the thread's pool leaves it to another.
ApiStatus take_on(TextWork work);
// The same before so many bytes of text are tokenised.
ApiStatus take_on_text(std::size_t bytes);

}  // namespace tessera
