#include "tessera/server/output_grammar.h"

#include <fmt/format.h>

#include <utility>

namespace tessera {
namespace {

using Kind = GrammarSpec::Kind;

// A schema, written as JSON or as text that holds it.
ApiResult<std::string> schema_text(const ApiFields& fields, std::string_view key) {
  const Json* schema = fields.find(key);
  if (schema->is_string()) {
    const Result<Json> parsed = Json::parse(schema->as_string(), "the schema");
    if (!parsed.ok()) return invalid_field(fields.param(key), parsed.status().message());
    return schema->as_string();
  }
  if (!schema->is_object() && !schema->is_bool()) return fields.wrong(key, "a JSON schema");
  return schema->dump();
}

ApiResult<std::optional<OutputGrammar>> read_response_format(const ApiFields& fields) {
  std::optional<OutputGrammar> none;
  const Json* format = TRY(fields.object("response_format"));
  if (format == nullptr) return none;
  const ApiFields inner(*format, "response_format.");
  const std::optional<std::string> type = TRY(inner.string("type"));
  if (type == "text") return none;
  OutputGrammar grammar;
  if (type == "json_object") {
    grammar.spec.kind = Kind::kJsonObject;
    grammar.param = "response_format";
    return std::optional(std::move(grammar));
  }
  if (type != "json_schema") return inner.wrong("type", "\"text\", \"json_object\" or \"json_schema\"");
  const Json* named = TRY(inner.object("json_schema"));
  if (named == nullptr) return inner.wrong("json_schema", "an object with a \"schema\"");
  const ApiFields holder(*named, "response_format.json_schema.");
  if (holder.find("schema") == nullptr) return holder.wrong("schema", "a JSON schema");
  grammar.spec.kind = Kind::kJsonSchema;
  grammar.spec.text = TRY(schema_text(holder, "schema"));
  grammar.param = holder.param("schema");
  return std::optional(std::move(grammar));
}

}  // namespace

ApiResult<std::optional<OutputGrammar>> read_output_grammar(const ApiFields& fields) {
  constexpr std::pair<std::string_view, Kind> kKeys[] = {
      {"json_schema", Kind::kJsonSchema},
      {"guided_json", Kind::kJsonSchema},
      {"regex", Kind::kRegex},
      {"guided_regex", Kind::kRegex},
      {"ebnf", Kind::kEbnf},
      {"guided_grammar", Kind::kEbnf},
  };
  std::optional<OutputGrammar> grammar = TRY(read_response_format(fields));
  for (const auto& [key, kind] : kKeys) {
    if (fields.find(key) == nullptr) continue;
    if (grammar) {
      return invalid_field(fields.param(key),
                           fmt::format("\"{}\" and \"{}\" both constrain the output; accepted: one of them",
                                       grammar->param, fields.param(key)));
    }
    std::string text;
    if (kind == Kind::kJsonSchema) {
      text = TRY(schema_text(fields, key));
    } else {
      text = *TRY(fields.string(key));
    }
    grammar = OutputGrammar{.spec = {.kind = kind, .text = std::move(text)}, .param = fields.param(key)};
  }
  return grammar;
}

}  // namespace tessera
