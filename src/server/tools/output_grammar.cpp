#include "tessera/server/tools/output_grammar.h"

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <utility>

#include "tessera/server/fields/request_fields.h"

namespace tessera {
namespace {

using GrammarKind = GrammarSpec::Kind;

// Returns the JSON text of the schema in the field `key`. The field has the schema itself, or a string with its JSON
// text.
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
    grammar.spec.kind = GrammarKind::kJsonObject;
    grammar.param = "response_format";
    return std::optional(std::move(grammar));
  }
  if (type != "json_schema") return inner.wrong("type", "\"text\", \"json_object\" or \"json_schema\"");
  const Json* named = TRY(inner.object("json_schema"));
  if (named == nullptr) return inner.wrong("json_schema", "an object with a \"schema\"");
  const ApiFields holder(*named, "response_format.json_schema.");
  if (holder.find("schema") == nullptr) return holder.wrong("schema", "a JSON schema");
  grammar.spec.kind = GrammarKind::kJsonSchema;
  grammar.spec.text = TRY(schema_text(holder, "schema"));
  grammar.param = holder.param("schema");
  return std::optional(std::move(grammar));
}

// Returns `text` as a literal of EBNF.
std::string ebnf_literal(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      literal += '\\';
      literal += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      literal += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      literal += c;
    }
  }
  return literal + '"';
}

// Returns an EBNF grammar that accepts exactly the texts listed in the field `key`.
ApiResult<std::string> choice_grammar(const ApiFields& fields, std::string_view key) {
  constexpr std::string_view kAccepted = "a list of strings, none of them empty";
  const Json* list = fields.find(key);
  if (!list->is_array() || list->as_array().empty()) return fields.wrong(key, kAccepted);
  std::string grammar = "root ::=";
  for (const Json& text : list->as_array()) {
    if (!text.is_string() || text.as_string().empty()) return fields.wrong(key, kAccepted);
    grammar += &text == &list->as_array().front() ? " " : " | ";
    grammar += ebnf_literal(text.as_string());
  }
  return grammar;
}

enum class Form : std::uint8_t { kSchema, kRegex, kEbnf, kChoice, kAnyObject };

struct Key {
  std::string_view name;
  Form form;
};

// Returns the grammar that the field `key` asks for; nothing if the field is false. Precondition: the field has a
// value.
ApiResult<std::optional<OutputGrammar>> read_key(const ApiFields& fields, const Key& key) {
  GrammarSpec spec;
  switch (key.form) {
    case Form::kSchema:
      spec.kind = GrammarKind::kJsonSchema;
      spec.text = TRY(schema_text(fields, key.name));
      break;
    case Form::kRegex:
      spec.kind = GrammarKind::kRegex;
      spec.text = *TRY(fields.string(key.name));
      break;
    case Form::kEbnf:
      spec.kind = GrammarKind::kEbnf;
      spec.text = *TRY(fields.string(key.name));
      break;
    case Form::kChoice:
      spec.kind = GrammarKind::kEbnf;
      spec.text = TRY(choice_grammar(fields, key.name));
      break;
    case Form::kAnyObject:
      if (!*TRY(fields.boolean(key.name))) return std::optional<OutputGrammar>();
      spec.kind = GrammarKind::kJsonObject;
      break;
  }
  return std::optional(OutputGrammar{.spec = std::move(spec), .param = fields.param(key.name)});
}

// Sets `grammar` to the grammar for which one of `keys` asks. Returns an error if a second grammar is asked for.
ApiStatus read_keys(const ApiFields& fields, std::span<const Key> keys, std::optional<OutputGrammar>& grammar) {
  for (const Key& key : keys) {
    if (fields.find(key.name) == nullptr) continue;
    std::optional<OutputGrammar> asked = TRY(read_key(fields, key));
    if (!asked) continue;
    if (grammar) {
      return invalid_field(asked->param,
                           fmt::format("\"{}\" and \"{}\" both constrain the output; accepted: one of them",
                                       grammar->param, asked->param));
    }
    grammar = std::move(asked);
  }
  return api_ok();
}

}  // namespace

// The schema of a list of calls has the parameters of tool i at this path. The client sent these parameters alone.
std::string grammar_error(const OutputGrammar& grammar, std::string message) {
  std::string tool = grammar.tools.size() == 1 ? grammar.tools[0] : "";
  for (std::size_t i = 0; grammar.list_of_calls && i < grammar.tools.size(); ++i) {
    const std::string path = fmt::format("#/items/anyOf/{}/properties/parameters", i);
    const std::size_t at = message.find(path);
    if (at == std::string::npos) continue;
    message.replace(at, path.size(), "#");
    tool = grammar.tools[i];
    break;
  }
  const std::string of_tool = tool.empty() ? "" : fmt::format("the parameters of the tool \"{}\": ", tool);
  return fmt::format("request: field \"{}\": {}{}", grammar.param, of_tool, message);
}

ApiResult<std::optional<OutputGrammar>> read_output_grammar(const ApiFields& fields, bool ignore_unknown) {
  static constexpr Key kKeys[] = {
      {"json_schema", Form::kSchema},   {"guided_json", Form::kSchema}, {"regex", Form::kRegex},
      {"guided_regex", Form::kRegex},   {"ebnf", Form::kEbnf},          {"guided_grammar", Form::kEbnf},
      {"guided_choice", Form::kChoice},
  };
  static constexpr Key kStructuredKeys[] = {
      {"json", Form::kSchema},   {"regex", Form::kRegex},           {"grammar", Form::kEbnf},
      {"choice", Form::kChoice}, {"json_object", Form::kAnyObject},
  };
  std::optional<OutputGrammar> grammar = TRY(read_response_format(fields));
  TRY(read_keys(fields, kKeys, grammar));
  const Json* structured = TRY(fields.object("structured_outputs"));
  if (structured == nullptr) return grammar;
  const ApiFields inner(*structured, fields.param("structured_outputs") + ".");
  TRY(check_request_fields(inner, request_object::kStructuredOutputs, ignore_unknown));
  const bool free_before = !grammar.has_value();
  TRY(read_keys(inner, kStructuredKeys, grammar));
  if (free_before && !grammar) {
    return fields.wrong("structured_outputs",
                        "an object with one of json, regex, choice, grammar and json_object: true");
  }
  return grammar;
}

}  // namespace tessera
