// Writes JSON text in order, without a tree. Writing must be cheap, because each stream writes an event for every
// token.
//
//   JsonWriter json;
//   json.object().key("index").value(0).key("tokens").array().value("a").value("b").end_array().end_object();
//   send(json.take());
//
// The caller must make the calls in a valid order. Brackets are not checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/json.h"

namespace tessera {

class JsonWriter {
 public:
  JsonWriter& object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(std::int64_t number);
  JsonWriter& value(int number) { return value(static_cast<std::int64_t>(number)); }
  JsonWriter& value(std::size_t number) { return value(static_cast<std::int64_t>(number)); }
  JsonWriter& value(bool truth) { return raw(truth ? "true" : "false"); }
  // Writes the shortest text that reads back as the same float or double, or null if the number is not finite.
  JsonWriter& value(float number);
  JsonWriter& value(double number);
  JsonWriter& value(const Json& json) { return raw(json.dump()); }
  JsonWriter& null() { return raw("null"); }
  // Writes the text, or null if it is empty.
  JsonWriter& value_or_null(std::string_view text) { return text.empty() ? null() : value(text); }

  // Writes JSON text made elsewhere as one value. The text may also be the beginning of an object ("{\"id\": 1"). The
  // next call then writes the next member of this object.
  JsonWriter& raw(std::string_view json);

  // Writes text between two values without a comma, such as the "data: " of a server-sent event.
  JsonWriter& between(std::string_view text);

  const std::string& text() const { return out_; }
  // Returns the text and resets the writer.
  std::string take();
  // Returns the text so far and empties the writer. What is written next continues the text.
  std::string take_part() { return std::exchange(out_, {}); }
  // Resets the writer but keeps its memory.
  void clear();

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string out_;
  bool wants_comma_ = false;
};

}  // namespace tessera
