// Follows one JSON object byte by byte, for text that a model is still writing. It tells whether the text is
// well-formed so far, whether the object has ended, and whether a byte belongs to a key, to a value, or to neither.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

class JsonScanner {
 public:
  // The part of the outermost object to which a byte belongs. kBetween stands for the object's own braces, colons and
  // commas, and for the spaces around these.
  enum class Part : std::uint8_t { kError, kBetween, kKey, kValue };

  // Reads the next byte and returns its part. Precondition: neither an error nor the end was reached.
  Part push(char c);
  // Returns whether the object's closing brace was read.
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State : std::uint8_t {
    kStart,     // expects the opening brace
    kFirstKey,  // expects a key or }
    kKey,       // expects a key after a comma
    kColon,
    kValue,
    kFirstItem,  // expects an item or ]
    kAfterValue,
    kString,
    kEscape,
    kHex,
    kLiteral,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
    kDone,
  };

  bool step(char c);
  bool begin_value(char c);
  bool begin_string();
  bool in_string(char c);
  bool in_number(char c);
  bool after_value(char c);
  bool open(char bracket);
  bool close();
  bool ends_number() const;

  State state_ = State::kStart;
  std::string open_;  // the open brackets, '{' or '['
  bool string_is_key_ = false;
  int hex_digits_ = 0;        // number of hexadecimal digits still expected
  const char* literal_ = "";  // the rest of the literal still expected
};

}  // namespace tessera
