// Defines an ordered type for JSON values, with a strict parser and a printer. No header includes a JSON library. The
// parser refuses trailing input, nesting deeper than kMaxJsonDepth, duplicate keys, invalid UTF-8 and numbers out of
// range. The parser's errors name the byte offset or the line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

inline constexpr int kMaxJsonDepth = 512;

// A Json that was moved from may only be assigned or destroyed.
class Json {
  // A box holds a value on the heap, and is copied and compared by this value. With boxes a Json takes 16 bytes, which
  // matters because prompts are lists of 100 000 integers.
  template <class T>
  class Box {
   public:
    explicit Box(T value) : value_(std::make_unique<T>(std::move(value))) {}
    Box(const Box& other) : Box(*other) {}
    Box(Box&&) noexcept = default;
    Box& operator=(const Box& other) {
      value_ = std::make_unique<T>(*other);
      return *this;
    }
    Box& operator=(Box&&) noexcept = default;
    ~Box() = default;
    T& operator*() { return *value_; }
    const T& operator*() const { return *value_; }
    friend bool operator==(const Box& a, const Box& b) { return *a == *b; }

   private:
    std::unique_ptr<T> value_;
  };

 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // members in the order of the text; keys are unique

  Json() = default;  // the JSON value null
  // NOLINTBEGIN(google-explicit-constructor): implicit conversions let a Json be written as its content
  Json(std::nullptr_t) {}
  Json(bool v) : value_(v) {}
  Json(int v) : value_(static_cast<std::int64_t>(v)) {}
  Json(std::int64_t v) : value_(v) {}
  Json(std::size_t v) : value_(static_cast<std::int64_t>(v)) {}
  Json(double v) : value_(v) {}
  Json(const char* v) : Json(std::string(v)) {}
  Json(std::string v) : value_(Box(std::move(v))) {}
  Json(std::string_view v) : Json(std::string(v)) {}
  Json(Array v) : value_(Box(std::move(v))) {}
  // NOLINTEND(google-explicit-constructor)
  static Json object() { return Json(Object{}, 0); }
  static Json object(Object members) { return Json(std::move(members), 0); }
  static Json array() { return Json(Array{}); }

  // Parses one JSON text. `what` names the input in errors ("config.json").
  static Result<Json> parse(std::string_view text, std::string_view what);
  static Result<Json> read_file(const std::string& path);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<Box<std::string>>(value_); }
  bool is_array() const { return std::holds_alternative<Box<Array>>(value_); }
  bool is_object() const { return std::holds_alternative<Box<Object>>(value_); }
  // Returns "null", "boolean", "integer", "number", "string", "array" or "object".
  std::string_view type_name() const;

  // Each function returns the value. Precondition: the matching is_…() is true.
  bool as_bool() const { return std::get<bool>(value_); }
  std::int64_t as_int() const { return std::get<std::int64_t>(value_); }
  double as_double() const;
  const std::string& as_string() const { return *std::get<Box<std::string>>(value_); }
  const Array& as_array() const { return *std::get<Box<Array>>(value_); }
  Array& as_array() { return *std::get<Box<Array>>(value_); }
  const Object& as_object() const { return *std::get<Box<Object>>(value_); }

  // Returns the member with this key. Returns null if this value is not an object or has no such key.
  const Json* find(std::string_view key) const;
  // Sets a member, or replaces it. Precondition: is_object().
  Json& set(std::string key, Json value);
  // Appends an element. Precondition: is_array().
  void push_back(Json value) { as_array().push_back(std::move(value)); }

  // Returns the value as JSON text. If indent < 0, the text is one line.
  std::string dump(int indent = -1) const;

  friend bool operator==(const Json&, const Json&) = default;

 private:
  Json(Object v, int) : value_(Box(std::move(v))) {}
  std::variant<std::monostate, bool, std::int64_t, double, Box<std::string>, Box<Array>, Box<Object>> value_;
};
static_assert(sizeof(Json) == 16);

// Reads a whole file. Errors name path and reason. If the file has more than `most` bytes, stops reading and returns an
// error.
Result<std::string> read_text_file(const std::string& path, std::size_t most = SIZE_MAX);

}  // namespace tessera
