// Parses a template's source into its syntax tree by Jinja2's grammar.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/text/jinja/ast.h"

namespace tessera::jinja {

// Parses a template. Errors name the line and the column. Returns invalid_argument for a syntax error or an unknown
// filter or test, and unimplemented for valid Jinja that this interpreter lacks (inheritance, imports).
Result<std::unique_ptr<const Program>> parse_template(std::string source, std::string name);

}  // namespace tessera::jinja
