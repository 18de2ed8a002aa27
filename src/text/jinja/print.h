// Prints values as Python's str() and repr() do, and converts values to JSON as json.dumps() does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

// Appends the text of {{ value }}. Spends the budget for every byte and element. Values that print differently in each
// run of Python (functions, generators) are unimplemented.
Status append_str(const Value& value, std::string& out, Budget& budget);
Result<std::string> str(const Value& value, Budget& budget);
// Appends Python's repr(value): a string in quotes, and any other value as in str().
Status append_repr(const Value& value, std::string& out, Budget& budget);

// Returns the shortest decimal form that reads back equal, spelled as in Python: 1.0, 1e-07, 1e+16, inf.
std::string float_repr(double value);

struct JsonStyle {
  std::optional<std::string> indent;  // the indent of one level; unset: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
Status append_json(const Value& value, const JsonStyle& style, std::string& out, Budget& budget);

}  // namespace tessera::jinja
