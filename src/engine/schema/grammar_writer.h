// Writes a JSON schema as a grammar. The schema's types must be settled (settled_types.h): values that "oneOf" and
// "not" exclude are already removed from them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/schema/ebnf.h"
#include "tessera/engine/schema/number_set.h"
#include "tessera/engine/schema/settled_types.h"

namespace tessera::schema {

class GrammarWriter {
 public:
  // `blank` is an expression for the whitespace between JSON's tokens. If it is empty, texts are written as Python's
  // json.dumps writes them, `{"a": [1, 2]}`. Keeps references to the table and the types.
  GrammarWriter(TypeTable& table, SettledTypes& types, std::string blank)
      : table_(table), types_(types), blank_(std::move(blank)) {}

  // Returns the rules of the grammar in xgrammar's EBNF, "root" first. Precondition: types.possible(root).
  Result<std::string> write(TypeId root);

 private:
  // A property or an item. Elements follow one another, separated by commas.
  struct Element {
    std::string text{};  // an EBNF expression
    bool required = false;
  };
  struct Elements {
    std::vector<Element> listed{};  // elements that come in this order, each at most once
    std::string more{};             // an expression for each further element, in any number; "": none
    bool alike = false;             // two of `more` may be the same property, so all of them count as one towards `min`
    std::int64_t min = 0;
    std::int64_t max = -1;
  };

  // Returns the name of the rule for the type's texts. The rule of a type with parts is written later.
  Result<std::string> type_rule(TypeId type);
  Result<std::string> alternatives(TypeId type);
  Result<std::string> alternative(const Shape& shape, TypeId type);
  Result<std::string> numbers(const NumberSet& set);
  Result<std::string> array(const ArrayShape& shape, TypeId type);
  Result<std::string> unique_array(const ArrayShape& shape, TypeId type);
  Result<std::string> object(const ObjectShape& shape);
  std::string value(const Json& json) const;

  // Returns an expression for the elements with commas between them.
  Result<std::string> separated(const Elements& elements);
  std::string uncounted(const Elements& elements);
  Result<std::string> counted(const Elements& elements);
  // Returns an expression for `min` to `max` of `values` in any order, each at most once.
  std::string any_order(const std::vector<std::string>& values, std::int64_t min, std::int64_t max);

  std::string token(std::string_view text) const;  // adds optional blanks around `text`
  std::string bracketed(std::string_view open, const std::string& inside, std::string_view close) const;
  std::string key(const std::string& name) const;  // includes the colon

  TypeTable& table_;
  SettledTypes& types_;
  std::string blank_;
  EbnfRules rules_;
  std::map<NumberSet, std::string> numbers_;  // a cache of expressions, because many numbers have the same bounds
  std::vector<std::string> names_;            // [type]: name of the type's rule; "": not named yet
  std::vector<TypeId> queue_;
};

}  // namespace tessera::schema
