// One tool call while a model writes it: {"name": …, "arguments": {…}}, or the arguments alone behind a name that is
// known. Says when it is certain that this is a call, and hands the arguments' text on as it comes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tessera/server/json_scanner.h"

namespace tessera {

class ToolCallReader {
 public:
  enum class State : std::uint8_t { kOpen, kDone, kFailed };

  // The members may come in any order; "parameters" is another word for "arguments". Arguments may also be a string
  // that contains the object. Members of other names are passed over.
  ToolCallReader() = default;
  // The object is the arguments.
  explicit ToolCallReader(std::string name) : name_(std::move(name)), slot_(Slot::kArguments), is_arguments_(true) {}

  // Precondition: the state is kOpen. The first byte must be '{'.
  State push(char c);

  // "" as long as it is unknown.
  const std::string& name() const { return name_; }
  // The name is known, and the arguments have begun or are certain to be none.
  bool is_call() const { return !name_.empty() && (streams_ || complete_); }
  // The arguments' text that has come since the last call. Precondition: is_call().
  std::string take_arguments();

 private:
  // The member whose value is being read.
  enum class Slot : std::uint8_t { kNone, kName, kArguments, kOther };

  bool begin_value(char c);
  bool end_value();
  bool end_arguments();
  bool end_object();

  JsonScanner scanner_;
  JsonScanner::Part part_ = JsonScanner::Part::kBetween;  // of the last byte
  std::string key_;
  std::string value_;  // of the name, or of arguments that are no object
  std::string name_;
  std::string arguments_;  // not taken yet
  Slot slot_ = Slot::kNone;
  bool is_arguments_ = false;
  bool streams_ = false;   // the arguments are an object
  bool complete_ = false;  // the arguments are known in whole
};

}  // namespace tessera
