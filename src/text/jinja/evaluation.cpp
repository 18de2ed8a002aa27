// The part of Interpreter that evaluates expressions.
#include "tessera/text/jinja/filters.h"
#include "tessera/text/jinja/interpreter.h"
#include "tessera/text/jinja/operators.h"
#include "tessera/text/jinja/print.h"
#include "tessera/text/jinja/value_tests.h"

namespace tessera::jinja {

Result<Value> Interpreter::eval(const Expression& expression) {
  const Nested nested(*this);
  Status allowed = nested.check();
  if (allowed.ok()) allowed = budget_.spend();
  if (!allowed.ok()) return place(expression.offset, std::move(allowed));
  Result<Value> value = eval_kind(expression);
  if (!value.ok()) return place(expression.offset, std::move(value).status());
  return value;
}

Result<Value> Interpreter::eval_kind(const Expression& expression) {
  using Kind = Expression::Kind;
  const auto part = [&](std::size_t i) { return eval(*expression.parts[i]); };
  switch (expression.kind) {
    case Kind::kConstant: return expression.constant;
    case Kind::kName: return look_up(expression.name);
    case Kind::kBlockText: return block_texts_.back();
    case Kind::kList: return Value::list(TRY(eval_parts(expression)));
    case Kind::kTuple: return Value::list(TRY(eval_parts(expression)), List::Kind::kTuple);
    case Kind::kDict: return eval_dict(expression);
    case Kind::kAttribute: return get_attribute(TRY(part(0)), expression.name, budget_);
    case Kind::kItem: {
      const Value object = TRY(part(0));
      return get_item(object, TRY(part(1)), budget_);
    }
    case Kind::kSlice: return eval_slice(expression);
    case Kind::kCall:
    case Kind::kFilter:
    case Kind::kTest: return eval_call(expression);
    case Kind::kNot: return Value(!truthy(TRY(part(0))));
    case Kind::kNegative: return negate(TRY(part(0)));
    case Kind::kPositive: return negate(TRY(negate(TRY(part(0)))));
    case Kind::kBinary: {
      const Value left = TRY(part(0));
      return apply_binary(expression.binary, left, TRY(part(1)), budget_);
    }
    case Kind::kCompare: return eval_compare(expression);
    case Kind::kAnd: {
      const Value left = TRY(part(0));
      return truthy(left) ? part(1) : Result<Value>(left);
    }
    case Kind::kOr: {
      const Value left = TRY(part(0));
      return truthy(left) ? Result<Value>(left) : part(1);
    }
    case Kind::kConcat: return eval_concat(expression);
    case Kind::kConditional:
      if (truthy(TRY(part(1)))) return part(0);
      if (expression.parts[2] != nullptr) return part(2);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
  }
  return internal_error("unknown expression");
}

Value Interpreter::look_up(const std::string& name) const {
  const Value* found = scope_->find(name);
  return found != nullptr ? *found : Value::undefined("'" + name + "' is undefined");
}

Result<std::vector<Value>> Interpreter::eval_parts(const Expression& expression) {
  std::vector<Value> out;
  out.reserve(expression.parts.size());
  for (const ExpressionPtr& part : expression.parts) out.push_back(TRY(eval(*part)));
  return out;
}

Result<Value> Interpreter::eval_dict(const Expression& expression) {
  std::vector<std::pair<Value, Value>> items;
  for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
    Value key = TRY(eval(*expression.parts[i]));
    items.emplace_back(std::move(key), TRY(eval(*expression.parts[i + 1])));
  }
  return Value::dict(std::move(items));
}

Result<Value> Interpreter::eval_slice(const Expression& expression) {
  Value parts[4];
  for (std::size_t i = 0; i < 4; ++i) {
    if (expression.parts[i] != nullptr) parts[i] = TRY(eval(*expression.parts[i]));
  }
  return get_slice(parts[0], parts[1], parts[2], parts[3], budget_);
}

Result<Value> Interpreter::eval_call(const Expression& expression) {
  const Value subject = TRY(eval(*expression.parts[0]));
  const CallArguments arguments = TRY(eval_arguments(expression.call));
  if (expression.kind == Expression::Kind::kFilter) {
    return apply_filter(find_filter(expression.name), *this, subject, arguments);
  }
  if (expression.kind == Expression::Kind::kTest) {
    return Value(TRY(find_test(expression.name)(*this, subject, arguments)));
  }
  return call(subject, arguments);
}

Result<CallArguments> Interpreter::eval_arguments(const CallSyntax& call) {
  CallArguments out;
  for (const ExpressionPtr& part : call.positional) out.positional.push_back(TRY(eval(*part)));
  if (call.star != nullptr) {
    const auto more = TRY(iterate(TRY(eval(*call.star)), budget_));
    out.positional.insert(out.positional.end(), more->items.begin(), more->items.end());
  }
  for (const auto& [name, part] : call.named) out.named.emplace_back(name, TRY(eval(*part)));
  if (call.star_star == nullptr) return out;
  const Value more = TRY(eval(*call.star_star));
  if (!more.is_dict()) return invalid_argument("argument after ** must be a mapping");
  for (const auto& [name, value] : more.as_dict().items) {
    if (!name.is_string()) return invalid_argument("keywords must be strings");
    for (const auto& [other, ignored] : out.named) {
      if (other == name.as_string()) return invalid_argument("multiple values for keyword argument '" + other + "'");
    }
    out.named.emplace_back(name.as_string(), value);
  }
  return out;
}

Result<Value> Interpreter::eval_compare(const Expression& expression) {
  Value left = TRY(eval(*expression.parts[0]));
  for (std::size_t i = 0; i < expression.compare.size(); ++i) {
    Value right = TRY(eval(*expression.parts[i + 1]));
    if (!TRY(apply_compare(expression.compare[i], left, right, budget_))) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::eval_concat(const Expression& expression) {
  return concatenate(TRY(eval_parts(expression)), budget_);
}

}  // namespace tessera::jinja
