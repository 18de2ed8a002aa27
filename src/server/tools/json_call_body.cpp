#include "tessera/server/tools/json_call_body.h"

#include <utility>

#include "tessera/base/json.h"

namespace tessera {

CallBody::State JsonCallBody::push(char c) {
  using Part = JsonScanner::Part;
  const Part part = scanner_.push(c);
  const Part before = std::exchange(part_, part);
  if (part == Part::kError) return State::kFailed;
  if (is_arguments_) {
    streams_ = true;
    arguments_ += c;
    complete_ = scanner_.done();
    return complete_ ? State::kDone : State::kOpen;
  }
  if (before == Part::kValue && part != Part::kValue && !end_value()) return State::kFailed;
  if (part == Part::kKey) {
    if (before != Part::kKey) key_.clear();
    key_ += c;
  }
  if (part == Part::kValue) {
    if (before != Part::kValue && !begin_value(c)) return State::kFailed;
    if (slot_ == Slot::kName || (slot_ == Slot::kArguments && !streams_)) value_ += c;
    if (slot_ == Slot::kArguments && streams_) arguments_ += c;
  }
  if (!scanner_.done()) return State::kOpen;
  return end_object() ? State::kDone : State::kFailed;
}

// Begins a member's value. Returns false if the call is invalid, because the name or the arguments are repeated or have
// a wrong type.
bool JsonCallBody::begin_value(char c) {
  value_.clear();
  slot_ = Slot::kOther;
  if (key_ == "\"name\"") {
    slot_ = Slot::kName;
    return name_.empty() && c == '"';
  }
  if (key_ == "\"arguments\"" || key_ == "\"parameters\"") {
    if (streams_ || complete_) return false;
    slot_ = Slot::kArguments;
    streams_ = c == '{';
    return streams_ || c == '"' || c == 'n';
  }
  return true;
}

bool JsonCallBody::end_value() {
  const Slot slot = std::exchange(slot_, Slot::kNone);
  if (slot == Slot::kArguments) return end_arguments();
  if (slot != Slot::kName) return true;
  const Result<Json> name = Json::parse(value_, "the name");
  if (!name.ok() || name->as_string().empty()) return false;
  name_ = name->as_string();
  return true;
}

bool JsonCallBody::end_arguments() {
  complete_ = true;
  if (streams_) return true;
  const Result<Json> value = Json::parse(value_, "the arguments");
  if (!value.ok()) return false;
  if (value->is_null()) {
    arguments_ = "{}";
    return true;
  }
  const Result<Json> inner = Json::parse(value->as_string(), "the arguments");
  if (!inner.ok() || !inner->is_object()) return false;
  arguments_ = value->as_string();
  return true;
}

bool JsonCallBody::end_object() {
  if (!streams_ && !complete_) arguments_ = "{}";
  complete_ = true;
  return !name_.empty();
}

std::string JsonCallBody::take_arguments() { return std::exchange(arguments_, {}); }

}  // namespace tessera
