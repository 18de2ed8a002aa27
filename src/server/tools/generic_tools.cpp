#include "tessera/server/tools/generic_tools.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tessera/server/images/content_parts.h"

namespace tessera {
namespace {

constexpr std::string_view kParallelForm =
    "To call a function, answer with nothing but this, filled in; for several calls, one such block after the other:\n";
constexpr std::string_view kSingleForm =
    "To call a function, answer with nothing but this, filled in; one call at a time:\n";
constexpr std::string_view kCallForm =
    "<tool_call>\n{\"name\": \"the function's name\", \"arguments\": {the arguments, as its \"parameters\" say}}\n"
    "</tool_call>\n"
    "The result then comes between <tool_response> and </tool_response>. Where no function is needed, answer in plain "
    "text.";

std::string text_of(const Json& message, std::string_view key) {
  const Json* value = message.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

Json message_of(std::string_view role, std::string content) {
  Json message = Json::object();
  message.set("role", role).set("content", std::move(content));
  return message;
}

std::string how_to_call(const ToolFields& tools) {
  switch (tools.choice) {
    case ToolChoice::kNamed:
      return fmt::format("Answer with the arguments of a call of \"{}\": a JSON object, and nothing else.",
                         tools.named);
    case ToolChoice::kRequired:
      return "Call at least one function: answer with a JSON list of calls, [{\"name\": the function's name, "
             "\"parameters\": {its arguments}}], and nothing else.";
    case ToolChoice::kNone:
    case ToolChoice::kAuto: break;
  }
  return std::string(tools.parallel ? kParallelForm : kSingleForm) + std::string(kCallForm);
}

std::string describe(const ToolFields& tools) {
  std::string text = "You can call these functions, each a line of JSON:\n";
  for (const Json& tool : tools.tools.as_array()) text += tool.find("function")->dump() + '\n';
  return text + '\n' + how_to_call(tools);
}

std::string call_text(const Json& call) {
  const Json& function = *call.find("function");
  Json shown = Json::object();
  shown.set("name", *function.find("name")).set("arguments", *function.find("arguments"));
  return fmt::format("<tool_call>\n{}\n</tool_call>", shown.dump());
}

// Returns the assistant's turn with its calls written as text.
Json assistant_text(const Json& message) {
  Json out = Json::object();
  for (const auto& [key, value] : message.as_object()) {
    if (key != "tool_calls") out.set(key, value);
  }
  std::string content = text_of(message, "content");
  for (const Json& call : message.find("tool_calls")->as_array())
    content += (content.empty() ? "" : "\n") + call_text(call);
  out.set("content", std::move(content));
  return out;
}

// Maps the ids of calls to the names of the called functions.
using CallNames = std::map<std::string, std::string>;

void note_names(const Json& message, CallNames& names) {
  for (const Json& call : message.find("tool_calls")->as_array()) {
    if (const std::string id = text_of(call, "id"); !id.empty()) names[id] = text_of(*call.find("function"), "name");
  }
}

std::string result_text(const Json& message, const CallNames& names) {
  const auto called = names.find(text_of(message, "tool_call_id"));
  const std::string name = called != names.end() ? called->second : text_of(message, "name");
  return fmt::format("<tool_response{}>\n{}\n</tool_response>", name.empty() ? "" : fmt::format(" name=\"{}\"", name),
                     text_of(message, "content"));
}

void prepend(Json& message, const std::string& text) {
  Json content = *message.find("content");
  prepend_text(text, content);
  message.set("content", std::move(content));
}

void append(Json& message, const std::string& text) {
  Json content = *message.find("content");
  append_text(text, content);
  message.set("content", std::move(content));
}

void add_description(Json& messages, const std::string& text, bool shows_system) {
  Json::Array& list = messages.as_array();
  const std::string first = text_of(list.front(), "role");
  if (first == "system" || first == "developer") {
    append(list.front(), "\n\n" + text);
  } else if (shows_system) {
    list.insert(list.begin(), message_of("system", text));
  } else if (first == "user") {
    prepend(list.front(), text + "\n\n");
  } else {
    list.insert(list.begin(), message_of("user", text));
  }
}

}  // namespace

bool shows_system_message(const ChatTemplate& chat, const RenderOptions& options) {
  constexpr std::string_view kMark = "what the system says";
  Json messages = Json::array();
  messages.push_back(message_of("system", std::string(kMark)));
  messages.push_back(message_of("user", "hello"));
  const Result<std::string> prompt = chat.render(messages, options);
  return prompt.ok() && prompt->find(kMark) != std::string::npos;
}

Json with_generic_tools(const Json& messages, const ToolFields& tools, bool shows_system) {
  Json out = Json::array();
  CallNames names;
  std::optional<std::string> results;  // text of the preceding "tool" messages, not yet in `out`
  const auto add_results = [&] {
    if (results) out.push_back(message_of("user", *std::exchange(results, std::nullopt)));
  };
  for (const Json& message : messages.as_array()) {
    const std::string role = text_of(message, "role");
    if (role == "tool") {
      if (results) *results += '\n';
      results = std::move(results).value_or("") + result_text(message, names);
      continue;
    }
    if (results && role == "user") {
      out.push_back(message);
      prepend(out.as_array().back(), *std::exchange(results, std::nullopt) + '\n');
      continue;
    }
    add_results();
    if (message.find("tool_calls") != nullptr) {
      note_names(message, names);
      out.push_back(assistant_text(message));
    } else {
      out.push_back(message);
    }
  }
  add_results();
  if (tools.tools.is_array()) add_description(out, describe(tools), shows_system);
  return out;
}

}  // namespace tessera
