// Reads a tool call in JSON: {"name": …, "arguments": {…}}, or only the arguments after a known name. JsonCallBody
// reports when the text is certainly a call, and passes on the arguments' text as it arrives.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tessera/server/fields/json_scanner.h"
#include "tessera/server/tools/call_body.h"

namespace tessera {

class JsonCallBody : public CallBody {
 public:
  // The members may come in any order. "parameters" is accepted instead of "arguments". The arguments may also be a
  // string that contains the object, or null, which means {}. Members with other names are skipped.
  JsonCallBody() = default;
  // The whole object is the arguments of the function `name`.
  explicit JsonCallBody(std::string name) : name_(std::move(name)), slot_(Slot::kArguments), is_arguments_(true) {}

  // Takes the next byte. The first byte must be '{'.
  State push(char c) override;
  const std::string& name() const override { return name_; }
  bool is_call() const override { return !name_.empty() && (streams_ || complete_); }
  std::string take_arguments() override;

 private:
  // The member whose value is being read.
  enum class Slot : std::uint8_t { kNone, kName, kArguments, kOther };

  bool begin_value(char c);
  bool end_value();
  bool end_arguments();
  bool end_object();

  JsonScanner scanner_;
  JsonScanner::Part part_ = JsonScanner::Part::kBetween;  // the part to which the last byte belongs
  std::string key_;
  std::string value_;  // JSON of the name, or of arguments that do not begin with {
  std::string name_;
  std::string arguments_;  // text that take_arguments() has not returned yet
  Slot slot_ = Slot::kNone;
  bool is_arguments_ = false;
  bool streams_ = false;   // the arguments are an object and are passed on as they arrive
  bool complete_ = false;  // the arguments are complete
};

}  // namespace tessera
