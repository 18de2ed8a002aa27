// Where things are in one JSON schema: what a "$ref" means, and the place of a schema for messages.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera::schema {

class SchemaIndex {
 public:
  // Keeps a reference to `root`, whose nesting is bounded. invalid_argument for two schemas of one "$id" or "$anchor".
  static Result<SchemaIndex> create(const Json& root);

  // The schema that `reference`, the "$ref" of `from`, means. invalid_argument where there is none, unimplemented for
  // one outside this document.
  Result<const Json*> resolve(const Json& from, const std::string& reference) const;
  // "#/properties/a": a JSON pointer in a fragment. `schema` is a part of the root.
  std::string place(const Json& schema) const;
  // Draft 7 and older: what stands beside a "$ref" has no meaning.
  bool reference_stands_alone() const { return old_draft_; }

 private:
  struct Resource {
    const Json* root = nullptr;
    std::string id{};  // absolute where it can be
  };
  explicit SchemaIndex(const Json& root) : root_(&root) {}
  Status walk(const Json& value, Resource resource, bool names);

  const Json* root_;
  bool old_draft_ = false;
  std::unordered_map<const Json*, Resource> resources_;   // of every object
  std::unordered_map<std::string, const Json*> by_name_;  // "id" and "id#anchor"
};

}  // namespace tessera::schema
