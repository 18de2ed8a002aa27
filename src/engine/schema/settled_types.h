// The part of a schema's types that is generated: what "oneOf" and "not" leave out is taken away, names are kept apart,
// and what nothing satisfies is known.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/schema/type_table.h"

namespace tessera::schema {

class SettledTypes {
 public:
  // All types that `root` leads to. unimplemented where a oneOf's alternatives overlap, or a "not" holds, in a way that
  // cannot be taken away.
  static Result<SettledTypes> create(TypeTable& table, TypeId root);

  // Shapes of a type that `root` leads to. Objects have the names that are generated and no others: implied ones are
  // gone unless they are needed, and classes leave out the members' names.
  const Shapes& shapes(TypeId type) const { return types_[static_cast<std::size_t>(type)].shapes; }
  // Whether a text of it is generated; of a shape of shapes().
  bool possible(TypeId type) const { return types_[static_cast<std::size_t>(type)].possible; }
  Result<bool> possible(const Shape& shape);

 private:
  struct Type {
    Shapes shapes{};
    bool generated = false;
    bool reached = false;  // for proofs
    bool possible = false;
    bool inhabited = false;  // by the standard; perhaps
  };
  // Holds for nothing, or the schema is refused.
  struct Overlap {
    Shape shape;
    LeftOut with;
  };
  explicit SettledTypes(TypeTable& table) : table_(table) {}

  Status reach(TypeId root);
  Status settle(TypeId type);
  Result<Shapes> without(const Shape& shape, const LeftOut& other);
  Result<Shapes> number_without(const Shape& shape, const Shape& other, const LeftOut& what);
  // Nothing where it cannot be said property by property.
  Result<std::optional<Shapes>> object_without(const Shape& closed, const Shape& other, const LeftOut& what);
  // Up to `most` parts of `closed` that are not of `other`, each because of one property, one item or the number of
  // items; nothing where none can be told.
  Result<std::optional<Shapes>> apart(const Shape& closed, const Shape& other, const LeftOut& what, std::size_t most);
  Result<std::optional<Shapes>> object_apart(const ObjectShape& object, const ObjectShape& other, const LeftOut& what,
                                             std::size_t most);
  Result<std::optional<Shapes>> array_apart(const ArrayShape& array, const ArrayShape& other, const LeftOut& what);
  // `object` with this property; what its classes of names say of it no longer holds.
  Result<Shape> with_member(const ObjectShape& object, const Member& member);
  Result<Shape> as_generated(const Shape& shape);
  Status keep_names_apart(ObjectShape& shape);
  void visit(TypeId type, bool generated);
  void visit_parts(const Shape& shape, bool generated);
  Status find_inhabited();
  Status find_possible();
  Result<bool> inhabited(const Shape& shape);
  Status spend_on_parts(const Shape& shape);
  Status refuse(const LeftOut& what) const;
  Type& at(TypeId type);

  TypeTable& table_;
  std::vector<Type> types_;
  std::vector<TypeId> to_settle_;
  std::vector<TypeId> to_reach_;
  std::vector<Overlap> overlaps_;
  std::set<std::pair<const Json*, TypeId>> told_apart_;  // LeftOut's place and type: by apart()
};

// All values of a type, where they are few and of one word each; for "uniqueItems".
Result<std::optional<std::vector<Json>>> few_values(const SettledTypes& types, TypeId type);

}  // namespace tessera::schema
