#include "tessera/text/jinja/arguments.h"

#include <algorithm>

namespace tessera::jinja {

Status spend_texts(const CallArguments& call, Budget& budget) {
  const auto spend = [&](const Value& value) {
    return value.is_string() ? budget.spend_bytes(value.as_string().size()) : ok_status();
  };
  for (const Value& value : call.positional) TRY(spend(value));
  for (const auto& [name, value] : call.named) TRY(spend(value));
  return ok_status();
}

Result<Arguments> Arguments::bind(std::string_view function, const CallArguments& call,
                                  std::initializer_list<std::string_view> parameters, std::size_t required) {
  Arguments out;
  out.function_ = function;
  out.parameters_ = parameters;
  out.values_.resize(parameters.size());
  const std::string prefix = out.function_ + "()";
  if (call.positional.size() > parameters.size()) {
    return invalid_argument(prefix + " takes at most " + std::to_string(parameters.size()) + " arguments, " +
                            std::to_string(call.positional.size()) + " were given");
  }
  for (std::size_t i = 0; i < call.positional.size(); ++i) out.values_[i] = &call.positional[i];
  for (const auto& [name, value] : call.named) {
    const auto it = std::find(parameters.begin(), parameters.end(), name);
    if (it == parameters.end()) return invalid_argument(prefix + " has no parameter '" + name + "'");
    const Value*& slot = out.values_[static_cast<std::size_t>(it - parameters.begin())];
    if (slot != nullptr) return invalid_argument(prefix + " got multiple values for argument '" + name + "'");
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!out.given(i))
      return invalid_argument(prefix + " needs the argument '" + std::string(out.parameters_[i]) + "'");
  }
  return out;
}

Result<std::string> Arguments::string(std::size_t i) const {
  if (!values_[i]->is_string()) return wrong_type(i, "a string");
  return values_[i]->as_string();
}

Result<std::string> Arguments::string_or(std::size_t i, std::string_view otherwise) const {
  if (!given(i) || values_[i]->is_none()) return std::string(otherwise);
  return string(i);
}

Result<std::int64_t> Arguments::integer(std::size_t i) const {
  if (!values_[i]->is_int() && !values_[i]->is_bool()) return wrong_type(i, "an integer");
  return values_[i]->as_int();
}

Result<std::int64_t> Arguments::integer_or(std::size_t i, std::int64_t otherwise) const {
  if (!given(i) || values_[i]->is_none()) return otherwise;
  return integer(i);
}

bool Arguments::truthy_or(std::size_t i, bool otherwise) const { return given(i) ? truthy(*values_[i]) : otherwise; }

Status Arguments::wrong_type(std::size_t i, std::string_view accepted) const {
  if (values_[i]->is_undefined()) return invalid_argument(values_[i]->why_undefined());
  return invalid_argument(function_ + "(): argument '" + std::string(parameters_[i]) + "' is of type '" +
                          std::string(type_name(*values_[i])) + "'; accepted: " + std::string(accepted));
}

}  // namespace tessera::jinja
