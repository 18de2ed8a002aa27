// Gives checked access to the members of an untrusted JSON file. Each error is one line that names file, field, value
// and what is accepted. A null member counts as absent, as in Hugging Face's code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"

namespace tessera {

// Reads a JSON file. It must be a regular file of at most 16 MB with an object at the top.
Result<Json> read_json_object(const std::string& path);

// Formats a value for a message, on one line and with bounded length. Returns "missing" for a null pointer.
std::string shown_value(const Json* value);
// Returns the text. A text of more than 120 bytes is cut to at most 120 bytes, between two characters, and gets "…" at
// its end.
std::string clip_text(std::string text);

class Fields {
 public:
  // Borrows `object`. `prefix` is put before each key in messages ("rope_parameters.").
  Fields(const Json& object, std::string file, std::string prefix = {})
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const std::string& file() const { return file_; }
  const Json* find(std::string_view key) const;                                  // null for an absent or null member
  bool has(std::string_view key) const { return object_.find(key) != nullptr; }  // true also for a null member

  // The next four functions read a number, which must be at least `low` and at most `high`.
  Result<std::int64_t> required_int(std::string_view key, std::int64_t low, std::int64_t high) const;
  Result<std::optional<std::int64_t>> optional_int(std::string_view key, std::int64_t low, std::int64_t high) const;
  Result<double> required_number(std::string_view key, double low, double high) const;
  Result<std::optional<double>> optional_number(std::string_view key, double low, double high) const;
  // Reads an integer of 1 to `most` into `size`. The field may be absent if `size` holds a default, which is above 0.
  Status read_size(std::string_view key, std::int64_t most, std::int64_t& size) const;
  // Reads a list of exactly `count` numbers, each at least `low` and at most `high`.
  Result<std::vector<double>> required_numbers(std::string_view key, std::size_t count, double low, double high) const;
  Result<std::optional<bool>> optional_bool(std::string_view key) const;
  Result<std::optional<std::string>> optional_string(std::string_view key) const;
  // Reads one id or a list of ids, each below vocab_size. Returns an empty list if the member is absent.
  Result<std::vector<TokenId>> token_ids(std::string_view key, std::int64_t vocab_size) const;

  // Returns a Fields for the members of `member`. `member` is the object that is the value of `key`.
  Fields inside(std::string_view key, const Json& member) const;

  // Both functions return the error `<file>: field "<key>" is <value>; accepted: <accepted>`. The error of wrong() has
  // the code kInvalidArgument, and the error of unsupported() has kUnimplemented.
  Status wrong(std::string_view key, std::string_view accepted) const;
  Status unsupported(std::string_view key, std::string_view accepted) const;

 private:
  std::string describe(std::string_view key, std::string_view accepted) const;
  const Json& object_;
  std::string file_;
  std::string prefix_;
};

}  // namespace tessera
