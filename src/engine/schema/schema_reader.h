// Reads the keywords of one JSON schema, and translates them into Shapes (shapes.h), which describe the permitted
// values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/schema/shapes.h"
#include "tessera/engine/schema/type_table.h"

namespace tessera::schema {

class SchemaReader {
 public:
  // Keeps references to both arguments, which read() uses.
  SchemaReader(TypeTable& table, const Json& schema) : table_(table), schema_(schema) {}

  Result<Shapes> read();

 private:
  // The parts of read(), in the order of their calls.
  Result<Shapes> own_shapes();
  Result<Shapes> keep_values(const Shapes& shapes);
  Result<Shapes> apply_reference(Shapes shapes);
  Result<Shapes> apply_alternatives(Shapes shapes);
  Result<Shapes> apply_one_of(Shapes shapes);
  Result<Shapes> apply_negations(Shapes shapes);
  Result<Shapes> apply_dependencies(Shapes shapes);

  Result<NumberSet> numbers();
  Result<std::optional<NumberSet::Bound>> bound(std::string_view key, std::string_view exclusive_key, int sign);
  Result<TextSet> texts();
  Result<ArrayShape> array();
  Result<ObjectShape> object();
  // A class of property names, and the schemas of the patterns that match these names.
  struct Matched {
    TextSet names{};
    std::vector<const Json*> schemas{};
  };
  Result<std::vector<Matched>> match_patterns(const Json* patterns);
  Result<std::vector<TextTerm>> pattern_terms(std::string_view pattern, std::string_view key);
  Status read_names(ObjectShape& out);
  Result<std::optional<TextSet>> names_of(const Shape& shape);
  Status keep_names(ObjectShape& out);
  Result<Shapes> with_present(const std::string& name, const std::vector<std::string>& required, const Json* schema);

  // Returns a keyword's value if it has the expected type, and null if it is absent.
  Result<const Json*> find(std::string_view key, std::string_view type) const;
  Result<std::int64_t> count(std::string_view key, std::int64_t otherwise) const;
  Result<const Json*> subschema(std::string_view key) const;
  Result<const Json*> schema_list(std::string_view key) const;
  Result<std::vector<std::string>> names(const Json& list, std::string_view key) const;
  bool has_applicators() const;
  Status malformed(std::string_view key, std::string_view accepted) const;
  Status unheld(std::string_view key, std::string_view reason) const;

  TypeTable& table_;
  const Json& schema_;
};

}  // namespace tessera::schema
