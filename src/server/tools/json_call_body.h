// A tool call as JSON: {"name": …, "arguments": {…}}, or the arguments alone behind a name that is known. Says when it
// is certain that this is a call, and hands the arguments' text on as it comes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tessera/server/fields/json_scanner.h"
#include "tessera/server/tools/call_body.h"

namespace tessera {

class JsonCallBody : public CallBody {
 public:
  // The members may come in any order; "parameters" is another word for "arguments". Arguments may also be a string
  // that contains the object. Members of other names are passed over.
  JsonCallBody() = default;
  // The object is the arguments.
  explicit JsonCallBody(std::string name) : name_(std::move(name)), slot_(Slot::kArguments), is_arguments_(true) {}

  // The first byte must be '{'.
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
