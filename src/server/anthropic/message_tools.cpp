#include "tessera/server/anthropic/message_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "tessera/server/anthropic/content_blocks.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxNameBytes = 256;

const std::string& name_of(const Json& tool) { return tool.find("function")->find("name")->as_string(); }

// Returns the tool with this name, or null. `tools` is a Json or const Json.
template <class List>
auto find_tool(List& tools, std::string_view name) -> decltype(&tools.as_array().front()) {
  if (!tools.is_array()) return nullptr;
  const auto found = std::ranges::find_if(tools.as_array(), [&](const Json& tool) { return name_of(tool) == name; });
  return found != tools.as_array().end() ? &*found : nullptr;
}

// Reads a tool that the client itself defines (type "custom"). Returns the tool in OpenAI's form, which templates
// expect.
ApiResult<Json> read_custom(const ApiFields& tool) {
  std::string name = TRY(tool.string("name")).value_or("");
  if (name.empty() || name.size() > kMaxNameBytes)
    return tool.wrong("name", fmt::format("a string of 1 to {} bytes", kMaxNameBytes));
  const std::optional<std::string> description = TRY(tool.string("description"));
  const Json* schema = TRY(tool.object("input_schema"));
  if (schema == nullptr) return tool.wrong("input_schema", "the JSON schema of an object");
  Json function = Json::object();
  function.set("name", std::move(name));
  if (description) function.set("description", *description);
  function.set("parameters", *schema);
  Json out = Json::object();
  out.set("type", "function").set("function", std::move(function));
  return out;
}

// The place where a tool is defined.
enum class ToolPlace : std::uint8_t {
  kList,      // in "tools"
  kAddition,  // in a tool_addition block; the tool replaces a tool with the same name
};

ApiStatus read_tool(const Json& json, const std::string& param, ToolPlace place, MessageTools& out) {
  if (!json.is_object()) {
    return invalid_field(param,
                         fmt::format("request: field \"{}\" is {}; accepted: an object", param, shown_value(&json)));
  }
  const ApiFields tool(json, param + ".");
  const std::string type = TRY(tool.string("type")).value_or("custom");
  if (type != "custom") {
    out.unavailable.push_back(type);
    return api_ok();
  }
  Json custom = TRY(read_custom(tool));
  if (out.called.tools.is_null()) out.called.tools = Json::array();
  if (Json* other = find_tool(out.called.tools, name_of(custom)); other != nullptr) {
    if (place == ToolPlace::kList) return tool.wrong("name", "a name that no other tool has");
    *other = std::move(custom);
    return api_ok();
  }
  out.called.tools.push_back(custom);
  const bool deferred = TRY(tool.boolean_or("defer_loading", false));
  if (deferred || place == ToolPlace::kAddition) return api_ok();
  if (out.shown.tools.is_null()) out.shown.tools = Json::array();
  out.shown.tools.push_back(std::move(custom));
  return api_ok();
}

// Reads the tools that system messages define. Skips malformed messages, which read_turns() refuses.
ApiStatus read_additions(const Json& messages, MessageTools& out) {
  for (std::size_t i = 0; i < messages.as_array().size(); ++i) {
    const Json& message = messages.as_array()[i];
    const Json* blocks = message.is_object() ? message.find("content") : nullptr;
    if (blocks == nullptr || !blocks->is_array() || !is_of_role(message, "system")) continue;
    TRY(each_block(*blocks, fmt::format("messages[{}].content", i),
                   [&](const ApiFields& block, const std::string& type) -> ApiStatus {
                     const Json* tool = type == "tool_addition" ? TRY(block.object("tool")) : nullptr;
                     const Json* definition = tool != nullptr ? tool->find("definition") : nullptr;
                     if (definition == nullptr) return api_ok();
                     return read_tool(*definition, block.param("tool.definition"), ToolPlace::kAddition, out);
                   }));
  }
  return api_ok();
}

ApiStatus read_choice(const ApiFields& body, ToolFields& called) {
  const bool has_tools = called.tools.is_array();
  called.choice = has_tools ? ToolChoice::kAuto : ToolChoice::kNone;
  const Json* json = TRY(body.object("tool_choice"));
  if (json == nullptr) return api_ok();
  const ApiFields choice(*json, "tool_choice.");
  called.parallel = !TRY(choice.boolean_or("disable_parallel_tool_use", false));
  const std::string type = TRY(choice.string("type")).value_or("");
  if (type == "auto") return api_ok();
  if (type == "none") {
    called.choice = ToolChoice::kNone;
  } else if (type == "any") {
    if (!has_tools)
      return choice.wrong("type", R"("auto" or "none", because the request has no "tools" that can be called)");
    called.choice = ToolChoice::kRequired;
  } else if (type == "tool") {
    const std::string name = TRY(required_text(choice, "name"));
    if (find_tool(called.tools, name) == nullptr) return choice.wrong("name", "the name of one of \"tools\"");
    called.choice = ToolChoice::kNamed;
    called.named = name;
  } else {
    return choice.wrong("type", R"("auto", "any", "tool" or "none")");
  }
  return api_ok();
}

}  // namespace

ApiResult<MessageTools> read_message_tools(const ApiFields& body) {
  MessageTools out;
  if (const Json* tools = TRY(body.array("tools")); tools != nullptr) {
    for (std::size_t i = 0; i < tools->as_array().size(); ++i)
      TRY(read_tool(tools->as_array()[i], fmt::format("tools[{}]", i), ToolPlace::kList, out));
  }
  if (const Json* messages = TRY(body.array("messages")); messages != nullptr) TRY(read_additions(*messages, out));
  TRY(read_choice(body, out.called));
  if (out.called.choice == ToolChoice::kNone) out.called.tools = out.shown.tools = Json();
  Json shown = std::move(out.shown.tools);
  out.shown = {.tools = std::move(shown),
               .choice = out.called.choice,
               .named = out.called.named,
               .parallel = out.called.parallel};
  return out;
}

std::string tool_definition(const MessageTools& tools, std::string_view name) {
  const Json* tool = find_tool(tools.called.tools, name);
  return tool != nullptr ? tool->find("function")->dump() : "";
}

std::string note_of_unavailable(const MessageTools& tools) {
  if (tools.unavailable.empty()) return "";
  std::string note = "this server does not have these tools, so the model was not told of them:";
  constexpr std::size_t kMostShown = 8;
  for (std::size_t i = 0; i < std::min(kMostShown, tools.unavailable.size()); ++i) {
    note += i > 0 ? ", " : " ";
    for (const char c : tools.unavailable[i].substr(0, 64)) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
      note += plain ? c : '?';
    }
  }
  return note;
}

}  // namespace tessera
