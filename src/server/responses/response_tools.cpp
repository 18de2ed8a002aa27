#include "tessera/server/responses/response_tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tessera/server/responses/custom_input.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxNameBytes = 256;
constexpr std::string_view kSeparator = "__";

ApiResult<std::string> read_name(const ApiFields& tool) {
  std::optional<std::string> name = TRY(tool.string("name"));
  if (!name || name->empty() || name->size() > kMaxNameBytes)
    return tool.wrong("name", fmt::format("a string of 1 to {} bytes", kMaxNameBytes));
  return *std::move(name);
}

// Returns a custom tool's description, with a hint on the form that the input must have.
ApiResult<std::string> custom_description(const ApiFields& tool) {
  std::string text = TRY(tool.string("description")).value_or("");
  const Json* format = TRY(tool.object("format"));
  if (format == nullptr) return text;
  const ApiFields fields(*format, tool.param("format") + ".");
  const std::string type = TRY(fields.string("type")).value_or("text");
  if (type == "text") return text;
  if (type != "grammar") return fields.wrong("type", "\"text\" or \"grammar\"");
  const std::string syntax = TRY(fields.string("syntax")).value_or("");
  const std::optional<std::string> definition = TRY(fields.string("definition"));
  if (!definition) return fields.wrong("definition", "a string");
  return text + fmt::format("\n\nThe input must follow this grammar ({}):\n{}", syntax, *definition);
}

class ToolReader {
 public:
  ApiStatus read(const Json& json, const std::string& param, const std::string& space) {
    if (!json.is_object()) {
      return invalid_field(param,
                           fmt::format("request: field \"{}\" is {}; accepted: an object", param, shown_value(&json)));
    }
    const ApiFields tool(json, param + ".");
    const std::string type = TRY(tool.string("type")).value_or("");
    if (type.empty()) return tool.wrong("type", "a string");
    if (type == "function") return read_function(tool, space);
    if (type == "custom") return read_custom(tool, space);
    if (type == "namespace" && space.empty()) return read_namespace(tool);
    if (std::ranges::find(tools.skipped, type) == tools.skipped.end()) tools.skipped.push_back(type);
    return api_ok();
  }

  ResponseTools tools;
  Json functions = Json::array();

 private:
  ApiStatus read_namespace(const ApiFields& tool) {
    const std::string space = TRY(read_name(tool));
    const Json* nested = TRY(tool.array("tools"));
    if (nested == nullptr) return tool.wrong("tools", "a list of functions");
    for (std::size_t i = 0; i < nested->as_array().size(); ++i)
      TRY(read(nested->as_array()[i], fmt::format("{}[{}]", tool.param("tools"), i), space));
    return api_ok();
  }

  ApiStatus read_function(const ApiFields& tool, const std::string& space) {
    Json function = Json::object();
    const std::string name = TRY(read_name(tool));
    function.set("name", shown_tool_name(space, name));
    if (const auto description = TRY(tool.string("description"))) function.set("description", *description);
    const Json* parameters = TRY(tool.object("parameters"));
    function.set("parameters", parameters != nullptr ? *parameters : Json::object({{"type", "object"}}));
    if (const auto strict = TRY(tool.boolean("strict"))) function.set("strict", *strict);
    return add(tool, {.shown = {}, .name = name, .space = space}, std::move(function));
  }

  ApiStatus read_custom(const ApiFields& tool, const std::string& space) {
    Json function = Json::object();
    const std::string name = TRY(read_name(tool));
    function.set("name", shown_tool_name(space, name));
    function.set("description", TRY(custom_description(tool)));
    function.set("parameters", custom_parameters());
    return add(tool, {.shown = {}, .name = name, .space = space, .custom = true}, std::move(function));
  }

  ApiStatus add(const ApiFields& given, ResponseTool tool, Json function) {
    tool.shown = function.find("name")->as_string();
    if (tools.find(tool.shown) != nullptr) return given.wrong("name", "a name that no other tool has");
    tools.list.push_back(std::move(tool));
    functions.push_back(Json::object({{"type", "function"}, {"function", std::move(function)}}));
    return api_ok();
  }
};

// Returns the tool that `choice` names. `choice` is {"type", "name", "namespace"}.
ApiResult<const ResponseTool*> named_tool(const ApiFields& choice, const ResponseTools& tools) {
  const std::string name = TRY(choice.string("name")).value_or("");
  const std::string space = TRY(choice.string("namespace")).value_or("");
  const ResponseTool* tool = tools.find(shown_tool_name(space, name));
  if (tool == nullptr) return choice.wrong("name", "the name of one of \"tools\"");
  return tool;
}

ApiStatus set_mode(const ApiFields& fields, std::string_view key, const std::string& mode, ResponseTools& out) {
  const bool has_tools = !out.list.empty();
  if (mode == "auto") {
    out.fields.choice = has_tools ? ToolChoice::kAuto : ToolChoice::kNone;
  } else if (mode == "required") {
    if (!has_tools) return fields.wrong(key, "\"none\" or \"auto\", because \"tools\" has no functions");
    out.fields.choice = ToolChoice::kRequired;
  } else {
    return fields.wrong(key, "\"auto\" or \"required\"");
  }
  return api_ok();
}

// Keeps only the tools that `choice` allows. Ignores entries of types other than "function" and "custom", because tools
// of such types were skipped and cannot be called.
ApiStatus read_allowed(const ApiFields& choice, ResponseTools& out, Json& functions) {
  const Json* allowed = TRY(choice.array("tools"));
  if (allowed == nullptr) return choice.wrong("tools", "a list of tools");
  std::vector<const ResponseTool*> kept;
  for (std::size_t i = 0; i < allowed->as_array().size(); ++i) {
    const Json& json = allowed->as_array()[i];
    const std::string param = fmt::format("{}[{}]", choice.param("tools"), i);
    if (!json.is_object())
      return invalid_field(param,
                           fmt::format("request: field \"{}\" is {}; accepted: an object", param, shown_value(&json)));
    const ApiFields entry(json, param + ".");
    const std::string type = TRY(entry.string("type")).value_or("");
    if (type == "function" || type == "custom") kept.push_back(TRY(named_tool(entry, out)));
  }
  std::vector<ResponseTool> list;
  Json left = Json::array();
  for (std::size_t i = 0; i < out.list.size(); ++i) {
    if (std::ranges::find(kept, &out.list[i]) == kept.end()) continue;
    list.push_back(out.list[i]);
    left.push_back(functions.as_array()[i]);
  }
  out.list = std::move(list);
  functions = std::move(left);
  return set_mode(choice, "mode", TRY(choice.string("mode")).value_or("auto"), out);
}

ApiStatus read_choice(const ApiFields& body, ResponseTools& out, Json& functions) {
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr) return set_mode(body, "tool_choice", "auto", out);
  constexpr std::string_view kAccepted =
      R"("none", "auto", "required", {"type": "function", "name": …} or {"type": "allowed_tools", "mode": …, "tools": […]})";
  if (*choice == Json("none")) return api_ok();
  if (choice->is_string() && (*choice == Json("auto") || *choice == Json("required")))
    return set_mode(body, "tool_choice", choice->as_string(), out);
  if (!choice->is_object()) return body.wrong("tool_choice", kAccepted);
  const ApiFields fields(*choice, "tool_choice.");
  const std::string type = TRY(fields.string("type")).value_or("");
  if (type == "allowed_tools") return read_allowed(fields, out, functions);
  if (type != "function" && type != "custom")
    return fields.unsupported("type", R"("function", "custom" or "allowed_tools")");
  out.fields.named = TRY(named_tool(fields, out))->shown;
  out.fields.choice = ToolChoice::kNamed;
  return api_ok();
}

}  // namespace

const ResponseTool* ResponseTools::find(std::string_view shown) const {
  const auto found = std::ranges::find(list, shown, &ResponseTool::shown);
  return found != list.end() ? &*found : nullptr;
}

std::string shown_tool_name(std::string_view space, std::string_view name) {
  if (space.empty()) return std::string(name);
  return fmt::format("{}{}{}", space, space.ends_with(kSeparator) ? "" : kSeparator, name);
}

ApiResult<ResponseTools> read_response_tools(const ApiFields& body) {
  ToolReader reader;
  const Json* tools = TRY(body.array("tools"));
  if (tools != nullptr) {
    for (std::size_t i = 0; i < tools->as_array().size(); ++i)
      TRY(reader.read(tools->as_array()[i], fmt::format("tools[{}]", i), /*space=*/""));
  }
  ResponseTools out = std::move(reader.tools);
  TRY(read_choice(body, out, reader.functions));
  if (out.fields.choice != ToolChoice::kNone) out.fields.tools = std::move(reader.functions);
  out.fields.parallel = TRY(body.boolean_or("parallel_tool_calls", true));
  return out;
}

std::string skipped_note(const ResponseTools& tools) {
  if (tools.skipped.empty()) return "";
  std::string shown = fmt::format("{}", fmt::join(tools.skipped, ", "));
  for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '?';
  return fmt::format("the model is not shown the tools of these types: {}", clip_text(shown));
}

}  // namespace tessera
