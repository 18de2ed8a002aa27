// Writes JSON text part by part, so that a large answer is never held as a whole.
//
//   JsonParts parts;
//   parts.once([](JsonWriter& json) { json.object().key("rows").array(); });
//   parts.each(rows.size(), [&](JsonWriter& json, std::size_t i) { write_row(json, rows[i]); });
//   parts.once([](JsonWriter& json) { json.end_array().end_object(); });
//   while (!parts.done()) send(parts.next(128 * 1024));
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/server/fields/json_writer.h"

namespace tessera {

class JsonParts {
 public:
  // Adds a part whose text comes from one call of `write`. References in `write` must stay valid until this call.
  JsonParts& once(std::function<void(JsonWriter& json)> write) {
    return each(1, [write = std::move(write)](JsonWriter& json, std::size_t) { write(json); });
  }
  // Adds a part whose text comes from `count` calls of `write`, with i = 0 … count - 1 in order.
  JsonParts& each(std::size_t count, std::function<void(JsonWriter& json, std::size_t i)> write) {
    if (count > 0) parts_.push_back({count, std::move(write)});
    return *this;
  }

  bool done() const { return part_ == parts_.size(); }
  // Returns the next text, at least `bytes` long unless it is the last text. Returns "" after the last part.
  std::string next(std::size_t bytes) {
    while (!done() && json_.text().size() < bytes) write_next(json_);
    return json_.take_part();
  }
  std::string all() { return next(static_cast<std::size_t>(-1)); }
  // Writes all remaining parts to another writer.
  JsonWriter& write_all(JsonWriter& json) {
    while (!done()) write_next(json);
    return json;
  }

 private:
  void write_next(JsonWriter& json) {
    parts_[part_].write(json, index_);
    if (++index_ < parts_[part_].count) return;
    index_ = 0;
    ++part_;
  }

  struct Part {
    std::size_t count;
    std::function<void(JsonWriter&, std::size_t)> write;
  };
  std::vector<Part> parts_;
  std::size_t part_ = 0;
  std::size_t index_ = 0;  // the `i` with which the current part's `write` is called next
  JsonWriter json_;
};

}  // namespace tessera
