// Implements the operators and look-ups in expressions, as Python defines them.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/text/jinja/ast.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

Result<Value> apply_binary(BinaryOperator op, const Value& left, const Value& right, Budget& budget);
Result<Value> negate(const Value& value);
Result<bool> apply_compare(CompareOperator op, const Value& left, const Value& right, Budget& budget);
// Concatenates the texts of all pieces: a ~ b ~ c.
Result<Value> concatenate(const std::vector<Value>& pieces, Budget& budget);

// Returns value.name. This is the method or attribute of that name if there is one, otherwise the member, otherwise an
// undefined value.
Result<Value> get_attribute(const Value& value, std::string_view name, Budget& budget);
// Returns value[key]. This is the member or element if there is one. Otherwise, if the key is a string, it is the
// method or attribute of that name.
Result<Value> get_item(const Value& value, const Value& key, Budget& budget);
Result<Value> get_slice(const Value& value, const Value& start, const Value& stop, const Value& step, Budget& budget);

// Returns the member that a filter's `attribute` names: "a.b.0" or a number. If a step of the path is undefined and
// `otherwise` is not null, `otherwise` replaces the step's value.
Result<Value> get_path(const Value& value, const Value& path, const Value* otherwise, Budget& budget);

}  // namespace tessera::jinja
