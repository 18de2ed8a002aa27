// The arguments of one tool call while a model writes them; for some forms also the name, which stands beside them.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

class CallBody {
 public:
  enum class State : std::uint8_t { kOpen, kDone, kFailed };

  virtual ~CallBody() = default;

  // Takes one byte. kDone: the byte is the body's last. kFailed: the byte cannot come here; it is not taken.
  // Precondition: the state is kOpen.
  virtual State push(char c) = 0;
  // The text ends here, in the middle of the body.
  virtual void finish() {}

  // Of the function; "" as long as it is unknown.
  virtual const std::string& name() const = 0;
  // The name is known, and the arguments have begun or are certain to be none.
  virtual bool is_call() const = 0;
  // The arguments' text that has come since the last call: a part of the JSON text of an object.
  // Precondition: is_call().
  virtual std::string take_arguments() = 0;
};

}  // namespace tessera
