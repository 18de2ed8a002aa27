#include "tessera/engine/schema/schema_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace tessera::schema {
namespace {

// Keywords with plain values, which contain no schemas.
constexpr std::array<std::string_view, 4> kValues = {"const", "enum", "default", "examples"};
// Keywords whose value maps names to schemas. These names are not keywords, even if a property is called "$id" or
// "enum".
constexpr std::array<std::string_view, 6> kNamed = {"properties",  "patternProperties", "$defs",
                                                    "definitions", "dependentSchemas",  "dependencies"};

constexpr std::size_t kMaxIdBytes = 2048;

// Returns whether the draft that "$schema" names is draft 7 or an older one. Returns nothing if it names none.
std::optional<bool> old_draft(const Json& schema) {
  const Json* draft = schema.find("$schema");
  if (draft == nullptr || !draft->is_string()) return std::nullopt;
  return std::ranges::any_of(std::array{"draft-03", "draft-04", "draft-06", "draft-07"},
                             [&](const char* old) { return draft->as_string().find(old) != std::string::npos; });
}

bool has_scheme(std::string_view uri) {
  const std::size_t colon = uri.find(':');
  return colon != std::string_view::npos && colon > 0 && uri.find_first_of("/?#") > colon;
}

// Resolves a reference as section 5.2 of RFC 3986 says, but does not remove dot segments.
std::string resolved(std::string_view base, std::string_view reference) {
  if (reference.empty() || has_scheme(reference)) return std::string(reference.empty() ? base : reference);
  if (reference.front() == '/') {
    const std::size_t authority = base.find("://");
    const std::size_t path = authority == std::string_view::npos ? 0 : base.find('/', authority + 3);
    return std::string(base.substr(0, path)) + std::string(reference);
  }
  const std::size_t slash = base.rfind('/');
  return std::string(slash == std::string_view::npos ? "" : base.substr(0, slash + 1)) + std::string(reference);
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    int code = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, code, 16);
    if (error != std::errc() || end != text.data() + i + 3) return std::nullopt;
    out += static_cast<char>(code);
    i += 2;
  }
  return out;
}

// Decodes one step of a JSON pointer: "~1" is "/", and "~0" is "~".
std::optional<std::string> unescaped(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '~') {
      out += token[i];
    } else {
      if (i + 1 >= token.size() || (token[i + 1] != '0' && token[i + 1] != '1')) return std::nullopt;
      out += token[++i] == '0' ? '~' : '/';
    }
  }
  return out;
}

std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

const Json* pointed(const Json* at, std::string_view pointer) {
  while (at != nullptr && !pointer.empty()) {
    if (pointer.front() != '/') return nullptr;
    pointer.remove_prefix(1);
    const std::optional<std::string> token = unescaped(pointer.substr(0, pointer.find('/')));
    pointer.remove_prefix(std::min(pointer.find('/'), pointer.size()));
    if (!token) return nullptr;
    if (at->is_object()) {
      at = at->find(*token);
    } else if (at->is_array()) {
      std::size_t index = 0;
      const char* end = token->data() + token->size();
      const auto [rest, error] = std::from_chars(token->data(), end, index);
      const bool good = error == std::errc() && rest == end && index < at->as_array().size();
      at = good ? &at->as_array()[index] : nullptr;
    } else {
      at = nullptr;
    }
  }
  return at;
}

bool find_place(const Json& at, const Json& wanted, std::string& place) {
  if (&at == &wanted) return true;
  const std::size_t length = place.size();
  if (at.is_object()) {
    for (const auto& [name, member] : at.as_object()) {
      place += '/' + escaped(name);
      if (find_place(member, wanted, place)) return true;
      place.resize(length);
    }
  } else if (at.is_array()) {
    for (std::size_t i = 0; i < at.as_array().size(); ++i) {
      place += fmt::format("/{}", i);
      if (find_place(at.as_array()[i], wanted, place)) return true;
      place.resize(length);
    }
  }
  return false;
}

}  // namespace

Result<SchemaIndex> SchemaIndex::create(const Json& root) {
  SchemaIndex index(root);
  index.resources_.push_back({.root = &root, .old_draft = old_draft(root).value_or(false)});
  TRY(index.walk(root, &index.resources_.front(), /*names=*/false));
  return index;
}

Status SchemaIndex::add_name(const std::string& name, const Json& schema) {
  const auto [known, added] = by_name_.try_emplace(name, &schema);
  // Accepts equal copies, because tools copy the schemas that they share.
  if (added || *known->second == schema) return ok_status();
  return invalid_argument(fmt::format("{}: \"{}\" is already the name of another schema", place(schema), name));
}

Status SchemaIndex::walk(const Json& value, const Resource* resource, bool names) {
  if (value.is_array()) {
    for (const Json& item : value.as_array()) TRY(walk(item, resource, false));
    return ok_status();
  }
  if (!value.is_object()) return ok_status();
  const Json* id = names ? nullptr : value.find("$id");
  if (id != nullptr && !id->is_string()) id = nullptr;
  if (id != nullptr && id->as_string().size() > kMaxIdBytes) {
    return invalid_argument(fmt::format("{}: \"$id\" has {} bytes; up to {} are accepted", place(value),
                                        id->as_string().size(), kMaxIdBytes));
  }
  if (id != nullptr && !id->as_string().starts_with('#')) {
    std::string name = id->as_string();
    name.resize(std::min(name.find('#'), name.size()));
    resources_.push_back({.root = &value,
                          .id = resolved(resource->id, name),
                          .old_draft = old_draft(value).value_or(resource->old_draft)});
    resource = &resources_.back();
    TRY(add_name(resource->id, value));
  }
  for (const std::string_view key : {"$anchor", "$dynamicAnchor"}) {
    const Json* anchor = names ? nullptr : value.find(key);
    if (anchor != nullptr && anchor->is_string()) TRY(add_name(resource->id + '#' + anchor->as_string(), value));
  }
  if (id != nullptr && id->as_string().starts_with('#')) TRY(add_name(resource->id + id->as_string(), value));
  resource_of_.emplace(&value, resource);
  for (const auto& [key, member] : value.as_object()) {
    if (!names && std::ranges::find(kValues, key) != kValues.end()) continue;
    TRY(walk(member, resource, !names && std::ranges::find(kNamed, key) != kNamed.end()));
  }
  return ok_status();
}

bool SchemaIndex::reference_stands_alone(const Json& schema) const {
  const auto known = resource_of_.find(&schema);
  return known != resource_of_.end() && known->second->old_draft;
}

Result<const Json*> SchemaIndex::resolve(const Json& from, const std::string& reference) const {
  const auto nothing = [&](std::string_view why) {
    return invalid_argument(fmt::format("{}: \"$ref\": \"{}\" {}", place(from), reference, why));
  };
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  const std::optional<std::string> fragment =
      percent_decoded(std::string_view(reference).substr(std::min(hash + 1, reference.size())));
  if (!fragment) return nothing("has a percent sign that escapes nothing");
  const auto known = resource_of_.find(&from);
  const Resource& here = known == resource_of_.end() ? resources_.front() : *known->second;
  const std::string id = hash == 0 ? here.id : resolved(here.id, reference.substr(0, hash));
  const Json* root = here.root;
  if (hash > 0 && id != here.id) {
    const auto found = by_name_.find(id);
    if (found == by_name_.end()) {
      return unimplemented(
          fmt::format("{}: \"$ref\": \"{}\" is outside this schema, and nothing is fetched", place(from), reference));
    }
    root = found->second;
  }
  const Json* target = nullptr;
  if (fragment->empty() || fragment->front() == '/') {
    target = pointed(root, *fragment);
  } else if (const auto found = by_name_.find(id + '#' + *fragment); found != by_name_.end()) {
    target = found->second;
  }
  if (target == nullptr) return nothing("names nothing in this schema");
  if (!target->is_object() && !target->is_bool()) return nothing("names no schema");
  return target;
}

std::string SchemaIndex::place(const Json& schema) const {
  std::string out = "#";
  find_place(*root_, schema, out);
  return out;
}

}  // namespace tessera::schema
