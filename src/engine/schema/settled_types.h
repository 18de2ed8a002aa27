// Reduces a schema's types to the values that are generated: removes values that "oneOf" and "not" exclude, removes the
// names of properties that the schema lists one by one from the sets of names that it describes by a rule (NameClass in
// shapes.h), and finds types without values.
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
  // Settles all types reachable from `root`. Returns unimplemented if the alternatives of a oneOf overlap, or a "not"
  // applies, in a way that shapes cannot express.
  static Result<SettledTypes> create(TypeTable& table, TypeId root);

  // Returns the shapes of a type reachable from `root`. Objects have exactly the names that are generated: implied
  // properties are removed unless they are needed, and name classes leave out the names of members.
  const Shapes& shapes(TypeId type) const { return types_[static_cast<std::size_t>(type)].shapes; }
  // Returns whether some text of the type, or of one of its shapes(), can be generated.
  bool possible(TypeId type) const { return types_[static_cast<std::size_t>(type)].possible; }
  Result<bool> possible(const Shape& shape);

 private:
  struct Type {
    Shapes shapes{};
    bool generated = false;
    bool reached = false;  // the type is part of an overlap, so find_inhabited() looks at it
    bool possible = false;
    bool inhabited = false;  // by the standard, some value may satisfy the type
  };
  // A shape, and a type whose values it must not have. The schema is refused if a value belongs to both.
  struct Overlap {
    Shape shape;
    LeftOut with;
  };
  explicit SettledTypes(TypeTable& table) : table_(table) {}

  Status reach(TypeId root);
  Status settle(TypeId type);
  Result<Shapes> without(const Shape& shape, const LeftOut& other);
  Result<Shapes> number_without(const Shape& shape, const Shape& other, const LeftOut& what);
  // Returns the objects of `closed` that are not in `other`. Returns nothing if the difference cannot be stated
  // property by property.
  Result<std::optional<Shapes>> object_without(const Shape& closed, const Shape& other, const LeftOut& what);
  // Returns up to `most` parts of `closed` that are disjoint from `other`. Each part is disjoint because of one
  // property, one item or the number of items. Returns nothing if there is no such part.
  Result<std::optional<Shapes>> apart(const Shape& closed, const Shape& other, const LeftOut& what, std::size_t most);
  Result<std::optional<Shapes>> object_apart(const ObjectShape& object, const ObjectShape& other, const LeftOut& what,
                                             std::size_t most);
  Result<std::optional<Shapes>> array_apart(const ArrayShape& array, const ArrayShape& other, const LeftOut& what);
  // Returns a copy of `object` that has `member`, in place of any member with the same name. If the name is new,
  // removes the name from the object's name classes.
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
  std::set<std::pair<const Json*, TypeId>> told_apart_;  // pairs of LeftOut::at and type for which apart() is used
};

// Returns all values of a type, if the type consists only of listed values and of integers between two bounds, and has
// at most 512 values. Otherwise returns nothing. Used for "uniqueItems".
Result<std::optional<std::vector<Json>>> few_values(const SettledTypes& types, TypeId type);

}  // namespace tessera::schema
