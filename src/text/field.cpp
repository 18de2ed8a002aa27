#include "tessera/text/field.h"

#include "tessera/text/unicode.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxQuoted = 80;

std::string cut(std::string text) {
  if (text.size() <= kMaxQuoted) return text;
  text.resize(complete_utf8_prefix(std::string_view(text).substr(0, kMaxQuoted)));
  return text + "…";
}

}  // namespace

std::string quote_json(const Json& value) {
  if (value.is_array() && value.as_array().size() > kMaxQuoted) {
    return "an array of " + std::to_string(value.as_array().size());
  }
  return cut(value.dump());
}

std::string quote_for_error(std::string_view text) { return cut(Json(text.substr(0, 2 * kMaxQuoted)).dump()); }

Field Field::member(std::string_view key) const {
  return {file_, path_ + "." + std::string(key), value_ == nullptr ? nullptr : value_->find(key)};
}

Result<std::vector<Field>> Field::elements() const {
  if (absent() || !value_->is_array()) return wrong_type("an array");
  std::vector<Field> out;
  const Json::Array& items = value_->as_array();
  out.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    out.emplace_back(file_, path_ + "[" + std::to_string(i) + "]", &items[i]);
  }
  return out;
}

Result<std::string> Field::string() const {
  if (absent() || !value_->is_string()) return wrong_type("a string");
  return value_->as_string();
}

Result<std::string> Field::string_or(std::string_view otherwise) const {
  if (absent()) return std::string(otherwise);
  return string();
}

Result<bool> Field::boolean_or(bool otherwise) const {
  if (absent()) return otherwise;
  if (!value_->is_bool()) return wrong_type("true or false");
  return value_->as_bool();
}

Result<std::int64_t> Field::integer() const {
  if (absent() || !value_->is_int()) return wrong_type("an integer");
  return value_->as_int();
}

Result<std::int64_t> Field::integer_or(std::int64_t otherwise) const {
  if (absent()) return otherwise;
  return integer();
}

Result<char32_t> Field::character() const {
  const std::string text = TRY(string());
  if (text.empty()) return invalid("accepted: a string of exactly one character");
  const Utf8Step step = decode_utf8(text, 0);
  if (step.kind != Utf8Step::Kind::kCharacter || step.length != text.size()) {
    return invalid("accepted: a string of exactly one character");
  }
  return step.code;
}

Status Field::check_depth(int depth) const {
  if (depth <= kMaxSequenceDepth) return ok_status();
  return invalid("nested deeper than " + std::to_string(kMaxSequenceDepth) + " sequences");
}

Status Field::invalid(std::string_view why) const { return invalid_argument(where() + ": " + std::string(why)); }

Status Field::unsupported(std::initializer_list<std::string_view> accepted) const {
  std::string message = where() + " is not supported; accepted: ";
  const char* separator = "";
  for (const std::string_view name : accepted) {
    message += separator;
    message += name;
    separator = ", ";
  }
  return unimplemented(std::move(message));
}

Status Field::wrong_type(std::string_view wanted) const {
  if (value_ == nullptr) return invalid_argument(where() + "; accepted: " + std::string(wanted));
  return invalid_argument(where() + " is " + (value_->is_null() ? "" : "of type ") + std::string(value_->type_name()) +
                          "; accepted: " + std::string(wanted));
}

std::string Field::where() const {
  return file_ + ": " + path_ + ": " + (value_ == nullptr ? "missing" : quote_json(*value_));
}

}  // namespace tessera
