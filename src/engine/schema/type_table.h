// Makes the types of one schema on demand. A type is the conjunction of a set of subschemas (or of negated types, see
// complement()). The same set always gives the same type, so a recursive schema leads back to types that exist already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/schema/schema_index.h"
#include "tessera/engine/schema/shapes.h"

namespace tessera::schema {

// The messages of errors read "#/place: \"keyword\": reason". An error is unimplemented if a schema has no exact form,
// and invalid_argument if the schema is malformed or too large.
class TypeTable {
 public:
  // Keeps a reference to `index`. Precondition: the nesting of the schema is bounded.
  explicit TypeTable(const SchemaIndex& index) : index_(index) {}

  // Returns the type of the values that satisfy all of these schemas.
  Result<TypeId> type_of(const std::vector<const Json*>& schemas);
  Result<TypeId> join(TypeId a, TypeId b);
  // Returns the type of the values that are not of `type`. Error messages use `why`.
  Result<TypeId> complement(TypeId type, const LeftOut& why);
  // Returns the type of all values.
  Result<TypeId> any() { return type_of({}); }
  // Returns the type without values.
  Result<TypeId> never() { return type_of({&never_}); }

  // Returns shapes whose union is the type. The pointer is valid as long as the table exists.
  Result<const Shapes*> shapes(TypeId type);
  std::size_t size() const { return types_.size(); }

  // Returns the intersection of two shapes as a list, which is empty if the intersection is obviously empty.
  Result<Shapes> both(const Shape& a, const Shape& b);
  // Returns the type of the property `name`. This is the type of the name class to which the name belongs, or never()
  // if it belongs to none. Precondition: no member of the shape has this name. Returns unimplemented if the name
  // matches a pattern in some dialects of regular expressions and not in others.
  Result<TypeId> value_of(const ObjectShape& shape, const std::string& name);
  // Removes the texts of the type `other` from `texts`. Returns false if nothing is left.
  Result<bool> leave_out(TextSet& texts, TypeId other);
  // Returns whether the type or shape contains `value`. The result may depend on the dialect of regular expressions by
  // which its patterns are read. Reading::kNarrow asks whether every dialect gives true, and Reading::kWide whether
  // some dialect does.
  Result<bool> admits(TypeId type, const Json& value, Reading reading);
  Result<bool> admits(const Shape& shape, const Json& value, Reading reading);

  TextSets& texts() { return texts_; }
  // Adds the type's place to an error that names no place yet.
  Status placed(Status error, TypeId type) const;
  Status error(StatusCode code, const Json& at, std::string_view keyword, std::string_view reason) const;

 private:
  struct Type {
    std::vector<const Json*> schemas;
    Shapes shapes{};
    bool expanded = false;
  };
  friend class SchemaReader;

  // Returns the schema that the "$ref" of `schema` names. Precondition: `schema` has a "$ref", and it is a string.
  Result<const Json*> target_of(const Json& schema);
  Result<Shapes> expand(const Type& type);
  // Reads one schema by itself.
  Result<Shapes> read(const Json& schema);
  Result<Shapes> product(const Shapes& a, const Shapes& b);
  Result<ArrayShape> both_arrays(const ArrayShape& a, const ArrayShape& b);
  Result<ObjectShape> both_objects(const ObjectShape& a, const ObjectShape& b);
  // Returns the name class to which the property `name` belongs, or null if it belongs to none. Precondition: no member
  // of the shape has this name. Returns unimplemented if the name matches a pattern in some dialects of regular
  // expressions and not in others.
  Result<const NameClass*> class_of(const ObjectShape& shape, const std::string& name);
  Result<bool> admits_array(const ArrayShape& shape, const Json& value, Reading reading);
  Result<bool> admits_object(const ObjectShape& shape, const Json& value, Reading reading);

  // Returns a schema that the type was made from.
  const Json& origin(const Type& type) const;

  const SchemaIndex& index_;
  Json never_{false};
  struct Negation {
    Json schema{};  // its address represents the negation in the list of a type's schemas
    LeftOut of{};
  };
  std::map<TypeId, std::unique_ptr<Negation>> negations_;
  std::unordered_map<const Json*, const Negation*> negation_of_;
  TextSets texts_;
  std::vector<std::unique_ptr<Type>> types_;
  // Numbers the schemas from 0, in the order in which type_of() first met them. A type's schemas are sorted by these
  // numbers. An order by addresses would change the result from run to run.
  std::unordered_map<const Json*, std::size_t> numbers_;
  std::map<std::vector<const Json*>, TypeId> ids_;
  std::unordered_map<const Json*, Shapes> read_;
  std::unordered_map<const Json*, const Json*> targets_;  // maps a reference to its target
  std::unordered_set<const Json*> reading_;  // schemas that are being read; used to find circular references
};

}  // namespace tessera::schema
