// A value inside a JSON configuration file together with its place, so that every error can name the file, the field,
// the value and what is accepted:
//
//   tokenizer.json: pre_tokenizer.pretokenizers[1].behavior: "isolated" is not accepted; accepted: …
//
// A Field borrows the Json, which must outlive it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

// The deepest nesting of "Sequence" in normalizers, pre-tokenizers, decoders and post-processors.
inline constexpr int kMaxSequenceDepth = 16;

class Field {
 public:
  // `path` is the field's place in the file ("pre_tokenizer"). The field is absent if `value` is null or points to a
  // JSON null.
  Field(std::string file, std::string path, const Json* value)
      : file_(std::move(file)), path_(std::move(path)), value_(value) {}

  bool absent() const { return value_ == nullptr || value_->is_null(); }
  const Json& json() const { return *value_; }
  const std::string& path() const { return path_; }

  // Returns the member `key` of an object; absent if there is none.
  Field member(std::string_view key) const;
  // Returns the elements of an array.
  Result<std::vector<Field>> elements() const;

  Result<std::string> string() const;
  Result<std::string> string_or(std::string_view otherwise) const;
  Result<bool> boolean_or(bool otherwise) const;
  Result<std::int64_t> integer() const;
  Result<std::int64_t> integer_or(std::int64_t otherwise) const;
  // Returns the character of a string that has exactly one character.
  Result<char32_t> character() const;
  // Returns an error for nesting deeper than kMaxSequenceDepth.
  Status check_depth(int depth) const;

  // Returns "<file>: <path>: <value>: <why>"; long values are cut.
  Status invalid(std::string_view why) const;
  // Returns an error for a value outside a fixed set: "… is not supported; accepted: a, b, c".
  Status unsupported(std::initializer_list<std::string_view> accepted) const;

 private:
  Status wrong_type(std::string_view wanted) const;
  std::string where() const;

  std::string file_;
  std::string path_;
  const Json* value_;
};

// Formats a value for an error message: JSON on one line, cut to about 80 bytes at a character boundary. For an array
// with more than 80 elements, gives only the number of elements.
std::string quote_json(const Json& value);
std::string quote_for_error(std::string_view text);

}  // namespace tessera
