// Where things are in one JSON schema: what a "$ref" means, and the place of a schema for messages.
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
  // Keeps a reference to `root`, whose nesting is bounded. invalid_argument for two different schemas of one "$id" or
  // "$anchor", and for a "$id" of more than 2048 bytes.
  static Result<SchemaIndex> create(const Json& root);

  // The schema that `reference`, the "$ref" of `from`, means. invalid_argument where there is none, unimplemented for
  // one outside this document.
  Result<const Json*> resolve(const Json& from, const std::string& reference) const;
  // "#/properties/a": a JSON pointer in a fragment. `schema` is a part of the root.
  std::string place(const Json& schema) const;
  // Whether `schema` is of draft 7 or older, where what stands beside a "$ref" has no meaning.
  bool reference_stands_alone(const Json& schema) const;

 private:
  // A schema with an id of its own, or the root, and what is in it.
  struct Resource {
    const Json* root = nullptr;
    std::string id{};  // absolute where it can be
    bool old_draft = false;
  };
  explicit SchemaIndex(const Json& root) : root_(&root) {}
  Status walk(const Json& value, const Resource* resource, bool names);
  Status add_name(const std::string& name, const Json& schema);

  const Json* root_;
  std::deque<Resource> resources_;
  std::unordered_map<const Json*, const Resource*> resource_of_;  // every object
  std::unordered_map<std::string, const Json*> by_name_;          // "id" and "id#anchor"
};

}  // namespace tessera::schema
