// Finds things in one JSON schema: the schema that a "$ref" refers to, and a schema's place as error messages name it.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera::schema {

class SchemaIndex {
 public:
  // Keeps a reference to `root`, whose nesting must be bounded. Returns invalid_argument if two different schemas have
  // the same "$id" or "$anchor", or if an "$id" has more than 2048 bytes.
  static Result<SchemaIndex> create(const Json& root);

  // Returns the schema that `reference`, the "$ref" of `from`, refers to. Returns invalid_argument if there is none,
  // and unimplemented if it is outside this document.
  Result<const Json*> resolve(const Json& from, const std::string& reference) const;
  // Returns the place of `schema`, a part of the root, as a JSON pointer in a fragment: "#/properties/a".
  std::string place(const Json& schema) const;
  // Returns whether `schema` follows draft 7 or an older draft, in which keywords beside a "$ref" have no meaning.
  bool reference_stands_alone(const Json& schema) const;

 private:
  // A schema with its own id, or the root, together with its contents.
  struct Resource {
    const Json* root = nullptr;
    std::string id{};  // an absolute URI if possible
    bool old_draft = false;
  };
  explicit SchemaIndex(const Json& root) : root_(&root) {}
  Status walk(const Json& value, const Resource* resource, bool names);
  Status add_name(const std::string& name, const Json& schema);

  const Json* root_;
  std::deque<Resource> resources_;
  std::unordered_map<const Json*, const Resource*> resource_of_;  // maps an object to the resource that contains it
  std::unordered_map<std::string, const Json*> by_name_;          // keys are "id" and "id#anchor"
};

}  // namespace tessera::schema
