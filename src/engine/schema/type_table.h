// The types of one schema, made as they are asked for: a type is a conjunction of schemas, so that recursion ends.
#pragma once

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

// Errors: "#/place: \"keyword\": reason"; unimplemented where a schema cannot be said exactly, invalid_argument where
// it is malformed or comes to too much.
class TypeTable {
 public:
  // Keeps references. Precondition: the nesting of the schema is bounded.
  explicit TypeTable(const SchemaIndex& index) : index_(index) {}

  // Values that are of all of these schemas.
  Result<TypeId> type_of(const std::vector<const Json*>& schemas);
  Result<TypeId> join(TypeId a, TypeId b);
  // Values that are not of it; `why` is for messages.
  Result<TypeId> complement(TypeId type, const LeftOut& why);
  // All values.
  Result<TypeId> any() { return type_of({}); }
  // None.
  Result<TypeId> never() { return type_of({&never_}); }

  // The union of these is the type. The reference holds as long as the table.
  Result<const Shapes*> shapes(TypeId type);
  std::size_t size() const { return types_.size(); }

  // Values that are of both; nothing where it is plain that there are none.
  Result<Shapes> both(const Shape& a, const Shape& b);
  // The type of a property that is none of the shape's members; that of no value where no class of names holds it.
  // unimplemented where dialects of regular expressions differ.
  Result<TypeId> value_of(const ObjectShape& shape, const std::string& name);
  // Whether `value` is of it, in every reading of its patterns or in any.
  Result<bool> admits(TypeId type, const Json& value, Reading reading);
  Result<bool> admits(const Shape& shape, const Json& value, Reading reading);

  TextSets& texts() { return texts_; }
  // An error that names no place yet gets the type's.
  Status placed(Status error, TypeId type) const;
  Status error(StatusCode code, const Json& at, std::string_view keyword, std::string_view reason) const;

 private:
  struct Type {
    std::vector<const Json*> schemas;
    Shapes shapes{};
    bool expanded = false;
  };
  friend class SchemaReader;

  // The schema that a "$ref" names, which is a string.
  Result<const Json*> target_of(const Json& schema);
  Result<Shapes> expand(const Type& type);
  // Of one schema, without what stands around it.
  Result<Shapes> read(const Json& schema);
  Result<Shapes> product(const Shapes& a, const Shapes& b);
  Result<ArrayShape> both_arrays(const ArrayShape& a, const ArrayShape& b);
  Result<ObjectShape> both_objects(const ObjectShape& a, const ObjectShape& b);
  // The class that holds a name which is none of the shape's members; null: no class does. unimplemented where
  // dialects of regular expressions differ.
  Result<const NameClass*> class_of(const ObjectShape& shape, const std::string& name);
  Result<bool> admits_array(const ArrayShape& shape, const Json& value, Reading reading);
  Result<bool> admits_object(const ObjectShape& shape, const Json& value, Reading reading);

  // Where a type comes from.
  const Json& origin(const Type& type) const;

  const SchemaIndex& index_;
  Json never_{false};
  struct Negation {
    Json schema{};  // stands for it in keys
    LeftOut of{};
  };
  std::map<TypeId, std::unique_ptr<Negation>> negations_;
  std::unordered_map<const Json*, const Negation*> negation_of_;
  TextSets texts_;
  std::vector<std::unique_ptr<Type>> types_;
  std::map<std::vector<const Json*>, TypeId> ids_;
  std::unordered_map<const Json*, Shapes> read_;
  std::unordered_map<const Json*, const Json*> targets_;  // of references
  std::unordered_set<const Json*> reading_;               // for references that go round in a circle
};

}  // namespace tessera::schema
