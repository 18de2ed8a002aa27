#include "tessera/server/fields/json_scanner.h"

#include <string_view>

#include "tessera/base/json.h"

namespace tessera {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

JsonScanner::Part JsonScanner::push(char c) {
  const auto depth_before = open_.size();
  const bool inside_before = state_ == State::kString || state_ == State::kEscape || state_ == State::kHex;
  const bool key_before = inside_before && string_is_key_;
  if (!step(c)) return Part::kError;
  // All brackets inside a member's value belong to the value, including the bracket that ends it. The condition
  // therefore uses the depth before and after the byte.
  if (depth_before > 1 || open_.size() > 1) return Part::kValue;
  if (inside_before) return key_before ? Part::kKey : Part::kValue;
  switch (state_) {
    case State::kString: return string_is_key_ ? Part::kKey : Part::kValue;
    case State::kLiteral:
    case State::kMinus:
    case State::kZero:
    case State::kInteger:
    case State::kPoint:
    case State::kFraction:
    case State::kExponent:
    case State::kExponentSign:
    case State::kExponentDigits: return Part::kValue;
    // At the last byte of "true", the state is already kAfterValue, although this byte is part of the value.
    case State::kAfterValue: return is_space(c) ? Part::kBetween : Part::kValue;
    default: return Part::kBetween;
  }
}

bool JsonScanner::step(char c) {
  switch (state_) {
    case State::kStart: return c == '{' && open(c);
    case State::kFirstKey:
      if (c == '}') return close();
      return is_space(c) || (c == '"' && (string_is_key_ = true) && begin_string());
    case State::kKey: return is_space(c) || (c == '"' && (string_is_key_ = true) && begin_string());
    case State::kColon:
      if (c == ':') state_ = State::kValue;
      return c == ':' || is_space(c);
    case State::kFirstItem:
      if (c == ']') return close();
      return is_space(c) || begin_value(c);
    case State::kValue: return is_space(c) || begin_value(c);
    case State::kAfterValue: return after_value(c);
    case State::kString:
    case State::kEscape:
    case State::kHex: return in_string(c);
    case State::kLiteral:
      if (c != *literal_) return false;
      if (*++literal_ == '\0') state_ = State::kAfterValue;
      return true;
    case State::kDone: return false;
    default: return in_number(c);
  }
}

bool JsonScanner::begin_value(char c) {
  const auto literal = [&](const char* rest) {
    literal_ = rest;
    state_ = State::kLiteral;
    return true;
  };
  switch (c) {
    case '{':
    case '[': return open(c);
    case '"': string_is_key_ = false; return begin_string();
    case 't': return literal("rue");
    case 'f': return literal("alse");
    case 'n': return literal("ull");
    case '-': state_ = State::kMinus; return true;
    case '0': state_ = State::kZero; return true;
    default: state_ = State::kInteger; return is_digit(c);
  }
}

bool JsonScanner::begin_string() {
  state_ = State::kString;
  return true;
}

bool JsonScanner::in_string(char c) {
  if (state_ == State::kHex) {
    if (--hex_digits_ == 0) state_ = State::kString;
    return is_hex(c);
  }
  if (state_ == State::kEscape) {
    state_ = c == 'u' ? State::kHex : State::kString;
    hex_digits_ = 4;
    return std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
  }
  if (c == '\\') state_ = State::kEscape;
  if (c == '"') state_ = string_is_key_ ? State::kColon : State::kAfterValue;
  return static_cast<unsigned char>(c) >= 0x20;
}

bool JsonScanner::ends_number() const {
  return state_ == State::kZero || state_ == State::kInteger || state_ == State::kFraction ||
         state_ == State::kExponentDigits;
}

bool JsonScanner::in_number(char c) {
  const auto go = [&](State next) {
    state_ = next;
    return true;
  };
  if (is_digit(c)) {
    switch (state_) {
      case State::kMinus: return go(c == '0' ? State::kZero : State::kInteger);
      case State::kInteger: return true;
      case State::kPoint:
      case State::kFraction: return go(State::kFraction);
      case State::kExponent:
      case State::kExponentSign:
      case State::kExponentDigits: return go(State::kExponentDigits);
      default: return false;
    }
  }
  const bool whole = state_ == State::kZero || state_ == State::kInteger;
  if (c == '.') return whole && go(State::kPoint);
  if (c == 'e' || c == 'E') return (whole || state_ == State::kFraction) && go(State::kExponent);
  if (c == '+' || c == '-') return state_ == State::kExponent && go(State::kExponentSign);
  return ends_number() && after_value(c);
}

bool JsonScanner::after_value(char c) {
  if (is_space(c)) {
    state_ = State::kAfterValue;
    return true;
  }
  const bool in_object = open_.back() == '{';
  if (c == ',') {
    state_ = in_object ? State::kKey : State::kValue;
    return true;
  }
  return c == (in_object ? '}' : ']') && close();
}

bool JsonScanner::open(char bracket) {
  if (open_.size() >= static_cast<std::size_t>(kMaxJsonDepth)) return false;
  open_ += bracket;
  state_ = bracket == '{' ? State::kFirstKey : State::kFirstItem;
  return true;
}

bool JsonScanner::close() {
  open_.pop_back();
  state_ = open_.empty() ? State::kDone : State::kAfterValue;
  return true;
}

}  // namespace tessera
