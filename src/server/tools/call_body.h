// Reads the arguments of one tool call while a model writes them. In some formats the body also has the function's
// name.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

class CallBody {
 public:
  enum class State : std::uint8_t { kOpen, kDone, kFailed };

  virtual ~CallBody() = default;

  // Takes one byte. kDone: the byte is the last of the body. kFailed: the byte is invalid here and was not taken.
  // Precondition: the state is kOpen.
  virtual State push(char c) = 0;
  // Tells the body that the text ends here, in the middle of the body.
  virtual void finish() {}

  // Returns the function's name; "" while it is unknown.
  virtual const std::string& name() const = 0;
  // Returns true once the name is known and the arguments have begun or are certainly absent.
  virtual bool is_call() const = 0;
  // Returns the arguments' text that has come since take_arguments() was last called. All pieces together are the JSON
  // text of an object. Precondition: is_call().
  virtual std::string take_arguments() = 0;
};

}  // namespace tessera
