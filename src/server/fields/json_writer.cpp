#include "tessera/server/fields/json_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace tessera {
namespace {

// Returns the letter after the backslash in the character's short escape, or 0 if the character has none.
char short_escape(char c) {
  switch (c) {
    case '"':
    case '\\': return c;
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
  }
}

// Returns whether the character is written as it is.
bool is_verbatim(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

// Returns whether the character needs neither a \u escape nor a check of its UTF-8.
bool is_plain(char c) { return is_verbatim(c) || short_escape(c) != 0; }

}  // namespace

void JsonWriter::separate() {
  if (wants_comma_) out_ += ',';
  wants_comma_ = true;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  wants_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_ += bracket;
  wants_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  value(name);
  out_ += ':';
  wants_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  const auto special = std::find_if_not(text.begin(), text.end(), is_verbatim);
  if (!std::all_of(special, text.end(), is_plain)) return raw(Json(text).dump());
  separate();
  out_ += '"';
  out_.append(text.begin(), special);
  for (const char c : std::string_view(special, text.end())) {
    const char escape = short_escape(c);
    if (escape != 0) out_ += '\\';
    out_ += escape != 0 ? escape : c;
  }
  out_ += '"';
  return *this;
}

JsonWriter& JsonWriter::value(std::int64_t number) {
  separate();
  const fmt::format_int digits(number);
  out_.append(digits.data(), digits.size());
  return *this;
}

JsonWriter& JsonWriter::value(float number) {
  if (!std::isfinite(number)) return null();
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", number);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", number);
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

void JsonWriter::clear() {
  wants_comma_ = false;
  out_.clear();
}

JsonWriter& JsonWriter::between(std::string_view text) {
  out_ += text;
  wants_comma_ = false;
  return *this;
}

std::string JsonWriter::take() {
  wants_comma_ = false;
  return std::exchange(out_, {});
}

}  // namespace tessera
