// Cuts a template's source into tokens, with Jinja's rules for white space: trim_blocks and lstrip_blocks on, "-" and
// "+" at tags, and one newline at the end of the source dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::jinja {

struct Token {
  enum class Kind {
    kText,        // text outside of tags
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kBlockBegin,  // {%
    kBlockEnd,    // %}
    kName,
    kString,   // text: the value, escapes resolved
    kInteger,  // text: the digits, without "_"
    kFloat,
    kOperator,  // text: the operator
    kEnd,
  };
  Kind kind;
  std::string text;
  std::size_t offset;  // into the normalised source
};

// The template's name and text, used for errors.
struct Source {
  std::string name;
  std::string text;  // newlines normalised

  // Returns "<name>: line 3, column 14: <message>"; columns count characters from 1.
  Status error(std::size_t offset, const Status& why) const;
  Status syntax_error(std::size_t offset, std::string message) const {
    return error(offset, invalid_argument(std::move(message)));
  }
};

// Turns \r\n and \r into \n, and removes one newline at the end.
std::string normalize_newlines(std::string_view source);

// Cuts the source into tokens; the last one is a kEnd. Precondition: source.text is well-formed UTF-8.
Result<std::vector<Token>> tokenize(const Source& source);

}  // namespace tessera::jinja
