// Follows one JSON object byte by byte: is it well-formed so far, has it ended, which member is this byte of. For text
// that a model is still writing.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

class JsonScanner {
 public:
  // What a byte is to the outermost object. Its braces, colons and commas, and the spaces around them, are between.
  enum class Part : std::uint8_t { kError, kBetween, kKey, kValue };

  // Precondition: no error and not done.
  Part push(char c);
  // The closing brace has come.
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State : std::uint8_t {
    kStart,     // the opening brace
    kFirstKey,  // or }
    kKey,       // behind a comma
    kColon,
    kValue,
    kFirstItem,  // or ]
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
  std::string open_;  // the brackets that are open, '{' or '['
  bool string_is_key_ = false;
  int hex_digits_ = 0;        // pending
  const char* literal_ = "";  // the pending rest of it
};

}  // namespace tessera
