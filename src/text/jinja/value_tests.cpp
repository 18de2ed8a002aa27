#include "tessera/text/jinja/value_tests.h"

#include "tessera/text/jinja/arguments.h"
#include "tessera/text/jinja/ast.h"
#include "tessera/text/jinja/filters.h"
#include "tessera/text/jinja/interpreter.h"
#include "tessera/text/jinja/methods.h"
#include "tessera/text/jinja/operators.h"
#include "tessera/text/jinja/print.h"

namespace tessera::jinja {
namespace {

// Makes a test that depends on the value alone.
template <bool (*predicate)(const Value&)>
Result<bool> of_value(Interpreter&, const Value& value, const CallArguments& call) {
  TRY(Arguments::bind("the test", call, {}));
  return predicate(value);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is_bool(); }
bool is_true(const Value& v) { return v.is_bool() && v.as_bool(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is_int(); }
bool is_float(const Value& v) { return v.is_float(); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool is_escaped(const Value& v) { return v.is_safe(); }
// In Jinja, an undefined value counts as callable (the call fails), and as iterable and a sequence (both are empty).
bool is_callable(const Value& v) { return v.is_function() || v.is_loop() || v.is_undefined(); }
bool is_iterable(const Value& v) {
  return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined() || v.is_loop();
}
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_dict() || v.is_undefined() || v.is_kind(List::Kind::kList) ||
         v.is_kind(List::Kind::kTuple) || v.is_kind(List::Kind::kRange);
}

template <CompareOperator op>
Result<bool> comparison(Interpreter& interpreter, const Value& value, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("the test", call, {"other"}, 1));
  return apply_compare(op, value, a[0], interpreter.budget());
}

// Returns whether value % divisor == rest.
Result<bool> leaves_rest(Interpreter& interpreter, const Value& value, const Value& divisor, std::int64_t rest) {
  const Value left = TRY(apply_binary(BinaryOperator::kModulo, value, divisor, interpreter.budget()));
  return equal(left, Value(rest), interpreter.budget());
}

template <std::int64_t rest>
Result<bool> parity(Interpreter& interpreter, const Value& value, const CallArguments& call) {
  TRY(Arguments::bind("the test", call, {}));
  return leaves_rest(interpreter, value, Value(std::int64_t{2}), rest);
}

Result<bool> divisible_by(Interpreter& interpreter, const Value& value, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("divisibleby", call, {"num"}, 1));
  return leaves_rest(interpreter, value, a[0], 0);
}

template <bool upper_case>
Result<bool> has_case(Interpreter& interpreter, const Value& value, const CallArguments& call) {
  TRY(Arguments::bind("the test", call, {}));
  const Value text(TRY(str(value, interpreter.budget())));
  const std::optional<Value> method = TRY(find_method(text, upper_case ? "isupper" : "islower"));
  if (!method) return internal_error("no string method for the test");
  return truthy(TRY(interpreter.call(*method, {})));
}

Result<bool> same_as(Interpreter&, const Value& value, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("sameas", call, {"other"}, 1));
  const Value& other = a[0];
  if (value.is_none() || other.is_none()) return value.is_none() && other.is_none();
  if (value.is_bool() || other.is_bool())
    return value.is_bool() && other.is_bool() && value.as_bool() == other.as_bool();
  if (value.is_dict() && other.is_dict()) return &value.as_dict() == &other.as_dict();
  if (value.is_list() && other.is_list()) return &value.as_list() == &other.as_list();
  if (value.is_namespace() && other.is_namespace()) return &value.as_namespace() == &other.as_namespace();
  if (type_name(value) != type_name(other)) return false;
  // Python's implementation decides whether two equal numbers or strings are the same object, so there is no fixed
  // result.
  return unimplemented("sameas of two values of type '" + std::string(type_name(value)) + "'; use ==");
}

Result<bool> is_filter_name(Interpreter&, const Value& value, const CallArguments& call) {
  TRY(Arguments::bind("filter", call, {}));
  TRY(check_hashable(value));
  return value.is_string() && find_filter(value.as_string()) != nullptr;
}

Result<bool> is_test_name(Interpreter&, const Value& value, const CallArguments& call) {
  TRY(Arguments::bind("test", call, {}));
  TRY(check_hashable(value));
  return value.is_string() && find_test(value.as_string()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  Test test;
};

constexpr NamedTest kTests[] = {
    {"boolean", of_value<is_boolean>},
    {"callable", of_value<is_callable>},
    {"defined", of_value<is_defined>},
    {"divisibleby", divisible_by},
    {"eq", comparison<CompareOperator::kEqual>},
    {"equalto", comparison<CompareOperator::kEqual>},
    {"==", comparison<CompareOperator::kEqual>},
    {"escaped", of_value<is_escaped>},
    {"even", parity<0>},
    {"false", of_value<is_false>},
    {"filter", is_filter_name},
    {"float", of_value<is_float>},
    {"ge", comparison<CompareOperator::kGreaterEqual>},
    {">=", comparison<CompareOperator::kGreaterEqual>},
    {"greaterthan", comparison<CompareOperator::kGreater>},
    {"gt", comparison<CompareOperator::kGreater>},
    {">", comparison<CompareOperator::kGreater>},
    {"in", comparison<CompareOperator::kIn>},
    {"integer", of_value<is_integer>},
    {"iterable", of_value<is_iterable>},
    {"le", comparison<CompareOperator::kLessEqual>},
    {"<=", comparison<CompareOperator::kLessEqual>},
    {"lessthan", comparison<CompareOperator::kLess>},
    {"lower", has_case<false>},
    {"lt", comparison<CompareOperator::kLess>},
    {"<", comparison<CompareOperator::kLess>},
    {"mapping", of_value<is_mapping>},
    {"ne", comparison<CompareOperator::kNotEqual>},
    {"!=", comparison<CompareOperator::kNotEqual>},
    {"none", of_value<is_none>},
    {"number", of_value<is_number>},
    {"odd", parity<1>},
    {"sameas", same_as},
    {"sequence", of_value<is_sequence>},
    {"string", of_value<is_string>},
    {"test", is_test_name},
    {"true", of_value<is_true>},
    {"undefined", of_value<is_undefined>},
    {"upper", has_case<true>},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const NamedTest& entry : kTests) {
    if (entry.name == name) return entry.test;
  }
  return nullptr;
}

std::string test_names() {
  std::string out;
  for (const NamedTest& entry : kTests) {
    if (!out.empty()) out += ", ";
    out += entry.name;
  }
  return out;
}

}  // namespace tessera::jinja
