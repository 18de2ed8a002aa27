// A template's source to its syntax tree: Jinja2's grammar.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/text/jinja/ast.h"

namespace tessera::jinja {

// Errors carry line and column. invalid_argument: a syntax error, an unknown filter or test;
// unimplemented: valid Jinja that this interpreter does not have (inheritance, imports).
Result<std::unique_ptr<const Program>> parse_template(std::string source, std::string name);

}  // namespace tessera::jinja
