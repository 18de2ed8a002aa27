#include "tessera/server/responses/custom_input.h"

#include <charconv>
#include <utility>

namespace tessera {
namespace {

constexpr std::string_view kKey = "input";
constexpr unsigned kReplacement = 0xfffd;

void append_utf8(unsigned code, std::string& out) {
  const auto byte = [&](unsigned value) { out += static_cast<char>(value); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
  }
  byte(0x80 | (code & 0x3f));
}

}  // namespace

Json custom_parameters() {
  return Json::object({{"type", "object"},
                       {"properties", Json::object({{std::string(kKey), Json::object({{"type", "string"}})}})},
                       {"required", Json::Array{kKey}},
                       {"additionalProperties", false}});
}

Json custom_arguments(std::string input) { return Json::object({{std::string(kKey), Json(std::move(input))}}); }

std::string CustomInput::push(std::string_view arguments) {
  std::string out;
  for (const char c : arguments) {
    if (!found_) all_ += c;
    if (broken_ || scanner_.done()) continue;
    switch (scanner_.push(c)) {
      case JsonScanner::Part::kError: broken_ = true; break;
      case JsonScanner::Part::kBetween: after_key_ = after_key_ || c == ':'; break;
      case JsonScanner::Part::kKey:
        if (after_key_) key_.clear();
        after_key_ = false;
        if (c != '"') key_ += c;
        break;
      case JsonScanner::Part::kValue: take_value(c, out); break;
    }
  }
  if (found_) all_.clear();
  return out;
}

// Takes one byte of a value in the arguments. The tool's input is the first value that is a string and
// has the key "input". Its text is appended to `out`.
void CustomInput::take_value(char c, std::string& out) {
  if (!in_input_) {
    if (c == '"' && after_key_ && key_ == kKey && !found_) in_input_ = found_ = true;
    if (after_key_) key_.clear();
    return;
  }
  if (!escape_.empty()) return take_escape(c, out);
  if (c != '\\') end_pair(out);
  if (c == '"') {
    in_input_ = false;
  } else if (c == '\\') {
    escape_ = c;
  } else {
    out += c;
  }
}

void CustomInput::take_escape(char c, std::string& out) {
  escape_ += c;
  if (escape_[1] == 'u') {
    constexpr std::size_t kUnit = 6;  // \u and four digits
    if (escape_.size() == kUnit) take_unit(out);
    return;
  }
  escape_.clear();
  end_pair(out);
  switch (c) {
    case 'b': out += '\b'; break;
    case 'f': out += '\f'; break;
    case 'n': out += '\n'; break;
    case 'r': out += '\r'; break;
    case 't': out += '\t'; break;
    default: out += c; break;
  }
}

// Writes U+FFFD if the first half of a UTF-16 surrogate pair has come. Call it when the second half can no longer come.
void CustomInput::end_pair(std::string& out) {
  if (std::exchange(high_, std::nullopt)) append_utf8(kReplacement, out);
}

// Takes a complete Unicode escape of a JSON string, which is one UTF-16 code unit. Half a surrogate pair without the
// other half becomes U+FFFD.
void CustomInput::take_unit(std::string& out) {
  unsigned unit = 0;
  const std::string digits = std::exchange(escape_, {}).substr(2);
  std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
  const bool is_high = unit >= 0xd800 && unit < 0xdc00;
  const bool is_low = unit >= 0xdc00 && unit < 0xe000;
  if (high_ && is_low)
    return append_utf8(0x10000 + ((*std::exchange(high_, std::nullopt) - 0xd800) << 10) + (unit - 0xdc00), out);
  end_pair(out);
  if (is_high) {
    high_ = unit;
  } else {
    append_utf8(is_low ? kReplacement : unit, out);
  }
}

std::string CustomInput::finish() { return std::exchange(all_, {}); }

}  // namespace tessera
