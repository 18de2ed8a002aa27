#include "tessera/server/reference/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tessera/server/fields/request_fields.h"
#include "tessera/server/http/error_shape.h"

namespace tessera {
namespace {

struct ErrorDoc {
  std::string_view status;
  std::string_view meaning;
};

// The errors with which every route may answer. Most of them come before a route's handler runs.
constexpr auto kErrors = std::to_array<ErrorDoc>({
    {"400", "The request is malformed, or a value in it is not accepted."},
    {"403", "The host, the origin or the key may not use this route."},
    {"408", "The request arrived too slowly, or ran out of its time."},
    {"413", "The request is too large."},
    {"415", "The body is not JSON, or has an unknown encoding."},
    {"417", "The Expect header asks for something that the server cannot do."},
    {"431", "The request's head is too long."},
    {"500", "The server failed at this request."},
    {"501", "The request asks for something that is not supported."},
    {"503", "The server is shutting down or overloaded, or the engine has failed."},
    {"505", "The request is not of HTTP/1.0 or HTTP/1.1."},
});
constexpr ErrorDoc kNoKey = {"401", "The request needs a key, and has no valid one."};
constexpr ErrorDoc kNotFound = {"404", "What the request names does not exist."};
constexpr ErrorDoc kTooMany = {"429", "Too many requests wait, or a limit is reached."};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

Json typed_schema(std::string_view type) { return Json::object({{"type", type}}); }

// Returns the schema of an error response in the format `shape`, which depends on the protocol.
Json error_schema(ErrorShape shape) {
  const Json text = typed_schema("string");
  const auto object = [](Json::Object members) {
    return Json::object({{"type", "object"}, {"properties", Json::object(std::move(members))}});
  };
  switch (shape) {
    case ErrorShape::kOllama: return object({{"error", text}});
    case ErrorShape::kAnthropic:
      return object({{"type", text}, {"error", object({{"type", text}, {"message", text}})}, {"request_id", text}});
    case ErrorShape::kOpenAi: break;
  }
  const Json maybe = Json::object({{"type", Json::Array{"string", "null"}}});
  return object({{"error", object({{"message", text}, {"type", text}, {"param", maybe}, {"code", maybe}})}});
}

std::string_view schema_name(ErrorShape shape) {
  switch (shape) {
    case ErrorShape::kOllama: return "OllamaError";
    case ErrorShape::kAnthropic: return "AnthropicError";
    case ErrorShape::kOpenAi: break;
  }
  return "OpenAIError";
}

constexpr std::array kShapes = {ErrorShape::kOpenAi, ErrorShape::kAnthropic, ErrorShape::kOllama};

// Returns the name of an error response in the document's components: "OpenAIError404".
std::string answer_name(ErrorShape shape, const ErrorDoc& error) {
  return fmt::format("{}{}", schema_name(shape), error.status);
}

Json answers_of(const DocumentedRoute& documented) {
  const RouteDoc& doc = documented.doc;
  const bool has_parameter = doc.path.find('{') != std::string_view::npos;
  std::vector<ErrorDoc> errors(kErrors.begin(), kErrors.end());
  if (documented.route->access != RouteAccess::kOpen) errors.push_back(kNoKey);
  if (doc.fields != 0 || has_parameter) errors.push_back(kNotFound);
  if (doc.fields != 0 || doc.path == "/health_generate") errors.push_back(kTooMany);
  std::ranges::sort(errors, {}, &ErrorDoc::status);

  Json types = Json::object();
  for (const std::string_view type : words_of(doc.answers)) types.set(std::string(type), Json::object());
  Json answers = Json::object();
  answers.set("200", Json::object({{"description", "The answer."}, {"content", std::move(types)}}));
  for (const ErrorDoc& error : errors) {
    const std::string name = answer_name(error_shape_of(doc.path), error);
    answers.set(std::string(error.status), Json::object({{"$ref", "#/components/responses/" + name}}));
  }
  return answers;
}

// Returns the error responses to which the operations refer: every error in the format of every protocol.
Json error_answers() {
  std::vector<ErrorDoc> errors(kErrors.begin(), kErrors.end());
  errors.insert(errors.end(), {kNoKey, kNotFound, kTooMany});
  Json answers = Json::object();
  for (const ErrorShape shape : kShapes) {
    const Json schema = Json::object({{"$ref", fmt::format("#/components/schemas/{}", schema_name(shape))}});
    const Json content = Json::object({{"application/json", Json::object({{"schema", schema}})}});
    for (const ErrorDoc& error : errors)
      answers.set(answer_name(shape, error), Json::object({{"description", error.meaning}, {"content", content}}));
  }
  return answers;
}

// Returns the schema of a query parameter. A parameter means the same on every route that has it.
Json parameter_schema(std::string_view name) {
  const auto words = [](Json::Array all) { return Json::object({{"enum", std::move(all)}}); };
  const auto from = [](int least) { return Json::object({{"type", "integer"}, {"minimum", least}}); };
  if (name == "limit") return from(1);
  if (name == "starting_after" || name == "dp_rank") return from(0);
  if (name == "order") return words({"asc", "desc"});
  if (name == "stream") return words({"true", "false"});
  if (name == "format") return words({"json", "prometheus"});
  return typed_schema("string");
}

Json parameters_of(const RouteDoc& doc) {
  Json parameters = Json::array();
  const auto add = [&](std::string_view name, const char* in, bool required) {
    parameters.push_back(
        Json::object({{"name", name}, {"in", in}, {"required", required}, {"schema", parameter_schema(name)}}));
  };
  if (const std::size_t begin = doc.path.find('{'); begin != std::string_view::npos)
    add(doc.path.substr(begin + 1, doc.path.find('}') - begin - 1), "path", true);
  for (const std::string_view name : words_of(doc.query)) add(name, "query", false);
  return parameters;
}

// Extends a schema to accept null, because a field that is null counts as absent.
Json or_null(Json schema) {
  if (const Json* values = schema.find("enum")) {
    Json::Array with_null = values->as_array();
    with_null.emplace_back();
    schema.set("enum", std::move(with_null));
  } else if (const Json* type = schema.find("type")) {
    Json::Array types = type->is_array() ? type->as_array() : Json::Array{*type};
    types.emplace_back("null");
    schema.set("type", std::move(types));
  }
  return schema;
}

Json field_schema(const AcceptedField& field) {
  // The schemas are constants of this program and valid JSON. A test parses all of them.
  Json schema = *Json::parse(field.schema, "request_fields.json");
  if (!field.required) schema = or_null(std::move(schema));
  std::string description(field.treatment == FieldTreatment::kHarmless ? "Accepted; it cannot change the answer." : "");
  if (!field.remark.empty()) description += (description.empty() ? "" : " ") + std::string(field.remark);
  if (!description.empty()) schema.set("description", std::move(description));
  return schema;
}

Json fields_schema(std::uint32_t objects) {
  Json properties = Json::object();
  Json required = Json::array();
  for (const AcceptedField& field : accepted_fields(objects)) {
    const std::string name(field.name);
    Json schema = field_schema(field);
    // A body may be one of several objects. If their schemas for the field differ, the field accepts any value.
    const Json* other = properties.find(name);
    properties.set(name, other == nullptr || *other == schema ? std::move(schema) : Json::object());
    if (field.required) required.push_back(name);
  }
  Json schema = Json::object({{"type", "object"}, {"properties", std::move(properties)}});
  if (!required.as_array().empty()) schema.set("required", std::move(required));
  return schema;
}

// Returns the schema of the multipart form that uploads a file.
Json form_schema() {
  const Json file = Json::object({{"type", "string"}, {"format", "binary"}});
  const Json purpose = Json::object({{"enum", Json::Array{"batch"}}});
  return Json::object(
      {{"type", "object"},
       {"properties", Json::object({{"file", file},
                                    {"purpose", purpose},
                                    {"expires_after[anchor]", Json::object({{"enum", Json::Array{"created_at"}}})},
                                    {"expires_after[seconds]",
                                     Json::object({{"type", "integer"}, {"minimum", 3600}, {"maximum", 2592000}})}})},
       {"required", Json::Array{"file", "purpose"}}});
}

Json body_of(std::string_view type, Json schema) {
  Json content = Json::object();
  content.set(std::string(type), Json::object({{"schema", std::move(schema)}}));
  return Json::object({{"required", true}, {"content", std::move(content)}});
}

Json operation_of(const DocumentedRoute& documented) {
  const RouteDoc& doc = documented.doc;
  Json operation = Json::object({{"tags", Json::Array{doc.group}}, {"summary", doc.summary}});
  if (Json parameters = parameters_of(doc); !parameters.as_array().empty())
    operation.set("parameters", std::move(parameters));
  if (doc.fields != 0) operation.set("requestBody", body_of("application/json", fields_schema(doc.fields)));
  if (documented.route->body == BodyType::kForm)
    operation.set("requestBody", body_of("multipart/form-data", form_schema()));
  operation.set("responses", answers_of(documented));
  if (documented.route->access == RouteAccess::kOpen) operation.set("security", Json::array());
  return operation;
}

std::string lower_method(std::string_view method) {
  std::string text(method);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace

Result<std::vector<DocumentedRoute>> document_routes(std::span<const Route> routes) {
  const auto describes = [](const RouteDoc& doc, const Route& route) {
    return doc.method == route.method && doc.route == route.path;
  };
  for (const Route& route : routes) {
    if (std::ranges::none_of(route_docs(), [&](const RouteDoc& doc) { return describes(doc, route); }))
      return internal_error(fmt::format("{} {} has no row in route_docs()", route.method, route.path));
  }
  std::vector<DocumentedRoute> documented;
  for (const RouteDoc& doc : route_docs()) {
    const auto found = std::ranges::find_if(routes, [&](const Route& route) { return describes(doc, route); });
    if (found == routes.end())
      return internal_error(fmt::format("{} {} has a row in route_docs() and no route", doc.method, doc.route));
    documented.push_back({doc, &*found});
  }
  return documented;
}

Json openapi_document(std::span<const DocumentedRoute> routes) {
  Json paths = Json::object();
  for (const DocumentedRoute& documented : routes) {
    const std::string path(documented.doc.path);
    const Json* earlier = paths.find(path);
    Json item = earlier == nullptr ? Json::object() : *earlier;
    item.set(lower_method(documented.doc.method), operation_of(documented));
    paths.set(path, std::move(item));
  }
  Json schemas = Json::object();
  for (const ErrorShape shape : kShapes) schemas.set(std::string(schema_name(shape)), error_schema(shape));
  const Json keys =
      Json::object({{"bearer", Json::object({{"type", "http"}, {"scheme", "bearer"}})},
                    {"x-api-key", Json::object({{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}})}});
  return Json::object(
      {{"openapi", "3.1.0"},
       {"info", Json::object({{"title", "Tessera"},
                              {"version", TESSERA_VERSION},
                              {"description",
                               "Bodies list the fields that are accepted. A field that is not listed is an error, "
                               "unless its value asks for nothing. Every GET route also takes HEAD. A key is needed "
                               "if the server has keys."}})},
       {"paths", std::move(paths)},
       {"components",
        Json::object({{"schemas", std::move(schemas)}, {"responses", error_answers()}, {"securitySchemes", keys}})},
       {"security",
        Json::Array{Json::object({{"bearer", Json::array()}}), Json::object({{"x-api-key", Json::array()}})}}});
}

}  // namespace tessera
