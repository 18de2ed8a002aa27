// Operators and look-ups of expressions, as Python defines them.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/text/template_ast.h"
#include "tessera/text/template_value.h"

namespace tessera::jinja {

Result<Value> apply_binary(BinaryOperator op, const Value& left, const Value& right, Budget& budget);
Result<Value> negate(const Value& value);
Result<bool> apply_compare(CompareOperator op, const Value& left, const Value& right, Budget& budget);
// The text of `pieces` one behind the other; text that is marked safe is not joined with text that
// Jinja would escape.
Result<Value> concatenate(const std::vector<Value>& pieces, Budget& budget);

// value.name: a method or attribute, else the member; undefined where there is none.
Result<Value> get_attribute(const Value& value, std::string_view name, Budget& budget);
// value[key]: the member or element, else (a string key) the method or attribute.
Result<Value> get_item(const Value& value, const Value& key, Budget& budget);
Result<Value> get_slice(const Value& value, const Value& start, const Value& stop, const Value& step, Budget& budget);

// Undefined where `value` has no attribute or element of this name: "a.b.0", as filters take it.
Result<Value> get_path(const Value& value, const Value& path, Budget& budget);

}  // namespace tessera::jinja
