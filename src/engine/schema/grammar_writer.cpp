#include "tessera/engine/schema/grammar_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tessera/engine/schema/grammar_limits.h"

namespace tessera::schema {
namespace {

// The maximum number of values of "uniqueItems" that may come in any order. To allow every order of n values takes 2^n
// rules.
constexpr std::size_t kMaxAnyOrder = 6;
constexpr std::size_t kMaxTextBytes = 4u << 20;  // largest size of the grammar in EBNF

}  // namespace

Result<std::string> GrammarWriter::write(TypeId root) {
  names_.assign(table_.size(), "");
  rules_.define("root", TRY(type_rule(root)));
  while (!queue_.empty()) {
    const TypeId type = queue_.back();
    queue_.pop_back();
    const Result<std::string> body = alternatives(type);
    if (!body.ok()) return table_.placed(body.status(), type);
    rules_.define(names_[static_cast<std::size_t>(type)], *body);
    if (rules_.count() > kMaxGrammarRules)
      return invalid_argument(fmt::format("it comes to more than {} rules", kMaxGrammarRules));
    if (rules_.bytes() > kMaxTextBytes)
      return invalid_argument(fmt::format("it comes to rules of more than {} MiB", kMaxTextBytes >> 20));
  }
  return rules_.text();
}

Result<std::string> GrammarWriter::type_rule(TypeId type) {
  std::string& name = names_[static_cast<std::size_t>(type)];
  if (!name.empty()) return name;
  const bool has_parts = std::ranges::any_of(types_.shapes(type), [](const Shape& shape) {
    return shape.get<ArrayShape>() != nullptr || shape.get<ObjectShape>() != nullptr;
  });
  if (has_parts) {
    queue_.push_back(type);
    name = fmt::format("t{}", type);
  } else {
    const Result<std::string> body = alternatives(type);
    if (!body.ok()) return table_.placed(body.status(), type);
    name = rules_.shared(*body);
  }
  return name;
}

Result<std::string> GrammarWriter::alternatives(TypeId type) {
  std::vector<std::string> out;
  std::unordered_set<std::string> known;
  for (const Shape& shape : types_.shapes(type)) {
    if (!TRY(types_.possible(shape))) continue;
    std::string text = TRY(alternative(shape, type));
    if (known.insert(text).second) out.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(out, " | "));
}

Result<std::string> GrammarWriter::alternative(const Shape& shape, TypeId type) {
  if (const Json* json = shape.get<Json>()) return value(*json);
  if (const NumberSet* set = shape.get<NumberSet>()) return numbers(*set);
  if (const TextSet* set = shape.get<TextSet>()) return table_.texts().ebnf(*set, rules_);
  if (const ArrayShape* items = shape.get<ArrayShape>()) return array(*items, type);
  return object(*shape.get<ObjectShape>());
}

Result<std::string> GrammarWriter::numbers(const NumberSet& set) {
  const auto known = numbers_.find(set);
  if (known != numbers_.end()) return known->second;
  const std::optional<std::string> text = TRY(number_ebnf(set, rules_, table_.texts().work()));
  return numbers_[set] = text.value_or("\"\"");
}

Result<std::string> GrammarWriter::array(const ArrayShape& shape, TypeId type) {
  if (shape.unique && (shape.max < 0 || shape.max > 1)) return unique_array(shape, type);
  Elements elements{.min = shape.min, .max = shape.max};
  bool open = true;
  for (std::size_t i = 0; i < shape.prefix.size() && open; ++i) {
    open = types_.possible(shape.prefix[i]);
    // Marks the first `min` items as required, because an array of at least `min` items has all of them.
    if (open) elements.listed.push_back({TRY(type_rule(shape.prefix[i])), static_cast<std::int64_t>(i) < shape.min});
  }
  if (open && types_.possible(shape.rest)) elements.more = TRY(type_rule(shape.rest));
  if (shape.prefix.empty()) return bracketed("[", TRY(separated(elements)), "]");
  // Nests the expressions of the prefix, so that an item can follow only if all items before it are there.
  const auto listed = static_cast<std::int64_t>(elements.listed.size());
  std::string tail;
  if (!elements.more.empty() && (shape.max < 0 || shape.max > listed)) {
    tail = ebnf_repeat(token(",") + ' ' + elements.more, std::max<std::int64_t>(0, shape.min - listed),
                       shape.max < 0 ? -1 : shape.max - listed);
  }
  for (std::int64_t i = std::min(listed, shape.max < 0 ? listed : shape.max); i-- > 0;) {
    const Element& element = elements.listed[static_cast<std::size_t>(i)];
    std::string one = (i > 0 ? token(",") + ' ' : "") + element.text;
    if (!tail.empty()) one += ' ' + tail;
    tail = rules_.shared(one);
    if (!element.required) tail = ebnf_repeat(tail, 0, 1);
  }
  return bracketed("[", tail, "]");
}

Result<std::string> GrammarWriter::unique_array(const ArrayShape& shape, TypeId type) {
  const std::optional<std::vector<Json>> few =
      shape.prefix.empty() && types_.possible(shape.rest) ? TRY(few_values(types_, shape.rest)) : std::nullopt;
  if (!few) {
    if (shape.prefix.empty() && !types_.possible(shape.rest)) return bracketed("[", "", "]");
    return table_.placed(unimplemented("\"uniqueItems\": supported only for items with a short list of values (an "
                                       "enum, booleans, integers in a small range)"),
                         type);
  }
  std::vector<std::string> values;
  for (const Json& one : *few) values.push_back(value(one));
  if (values.size() <= kMaxAnyOrder) {
    return bracketed("[", any_order(values, shape.min, shape.max), "]");
  }
  Elements elements{.min = shape.min, .max = shape.max};
  for (std::string& one : values) elements.listed.push_back({std::move(one), false});
  return bracketed("[", TRY(separated(elements)), "]");
}

Result<std::string> GrammarWriter::object(const ObjectShape& shape) {
  Elements elements{.alike = true, .min = shape.min, .max = shape.max};
  for (const Member& member : shape.members) {
    if (!types_.possible(member.value)) continue;
    elements.listed.push_back({key(member.name) + ' ' + TRY(type_rule(member.value)), member.required});
  }
  std::vector<std::string> more;
  for (const NameClass& one : shape.classes) {
    if (!types_.possible(one.value)) continue;
    const std::string name = rules_.shared(TRY(table_.texts().ebnf(one.names, rules_)));
    more.push_back(fmt::format("{} {} {}", name, token(":"), TRY(type_rule(one.value))));
  }
  if (!more.empty()) elements.more = rules_.shared(ebnf_choice(more));
  if (elements.min > static_cast<std::int64_t>(elements.listed.size()) + (more.empty() ? 0 : 1)) {
    return unimplemented(
        fmt::format("\"minProperties\": {} properties need several whose names are not given, and a "
                    "grammar cannot keep their names apart",
                    shape.min));
  }
  return bracketed("{", TRY(separated(elements)), "}");
}

std::string GrammarWriter::token(std::string_view text) const {
  if (blank_.empty()) return ebnf_text(std::string(text) + ' ');
  return fmt::format("{} {} {}", blank_, ebnf_text(text), blank_);
}

std::string GrammarWriter::bracketed(std::string_view open, const std::string& inside, std::string_view close) const {
  const std::string gap = blank_.empty() ? "" : blank_ + ' ';
  return fmt::format("{} {}{} {}{}", ebnf_text(open), gap, inside, inside.empty() ? "" : gap, ebnf_text(close));
}

std::string GrammarWriter::key(const std::string& name) const {
  if (blank_.empty()) return ebnf_text(Json(name).dump() + ": ");
  return fmt::format("{} {}", ebnf_text(Json(name).dump()), token(":"));
}

std::string GrammarWriter::value(const Json& json) const {
  if (blank_.empty() || (!json.is_array() && !json.is_object())) return ebnf_text(json.dump());
  std::string inside;
  const bool array = json.is_array();
  const std::size_t count = array ? json.as_array().size() : json.as_object().size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) inside += ' ' + token(",") + ' ';
    if (!array) inside += key(json.as_object()[i].first) + ' ';
    inside += value(array ? json.as_array()[i] : json.as_object()[i].second);
  }
  return bracketed(array ? "[" : "{", inside, array ? "]" : "}");
}

}  // namespace tessera::schema
