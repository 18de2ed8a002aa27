#include "tessera/server/anthropic/message_turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/server/anthropic/content_blocks.h"
#include "tessera/server/anthropic/thinking_signature.h"

namespace tessera {
namespace {

constexpr std::string_view kBillingLine = "x-anthropic-billing-header";
constexpr std::string_view kImageBelow = "[The image of this result follows below.]";
constexpr std::string_view kErrorMark = "Error: ";

std::string without_billing_line(std::string text) {
  if (!text.starts_with(kBillingLine)) return text;
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? "" : text.substr(end + 1);
}

// Returns a call id of nine letters and digits, made from the FNV-1a hash of `id`. Mistral's templates accept no other
// ids, and a model needs an id only to match a result with its call.
std::string short_id(std::string_view id) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string text(9, '0');
  for (char& digit : text) {
    digit = kDigits[hash % kDigits.size()];
    hash /= kDigits.size();
  }
  return text;
}

class TurnReader {
 public:
  TurnReader(const MessageTools& tools, bool images_allowed) : tools_(tools), images_allowed_(images_allowed) {}

  // Adds the first turn from "system", a string or a list of text blocks.
  ApiStatus add_first(const ApiFields& body) {
    const Json* given = body.find("system");
    if (given->is_string()) return add_system_text(Json(without_billing_line(given->as_string())));
    if (!given->is_array()) return body.wrong("system", "a string or a list of text blocks");
    TurnContent content;
    bool is_first = true;
    TRY(each_block(*given, "system", [&](const ApiFields& block, const std::string& type) -> ApiStatus {
      if (type != "text") return block.unsupported("type", "\"text\"");
      std::string text = TRY(required_text(block, "text"));
      if (std::exchange(is_first, false)) text = without_billing_line(std::move(text));
      if (!text.empty()) content.add_text(text);
      return api_ok();
    }));
    return add_system_text(content.take());
  }

  ApiStatus add_message(const Json& json, const std::string& param) {
    if (!json.is_object()) {
      return invalid_field(param, fmt::format("request: field \"{}\" is {}; accepted: an object with \"role\" and "
                                              "\"content\"",
                                              param, shown_value(&json)));
    }
    const ApiFields message(json, param + ".");
    const std::string role = TRY(message.string("role")).value_or("");
    if (role == "system") return add_system(message);
    if (role != "user" && role != "assistant") return message.wrong("role", R"("user", "assistant" or "system")");
    const Json* content = message.find("content");
    if (content != nullptr && content->is_string()) {
      push(role, *content);
      return api_ok();
    }
    if (content == nullptr || !content->is_array()) return message.wrong("content", "a string or a list of blocks");
    return role == "user" ? add_user(*content, message.param("content"))
                          : add_assistant(*content, message.param("content"));
  }

  ChatMessages take() { return std::move(out_); }

 private:
  ApiStatus add_system_text(Json text) {
    if (!text.as_string().empty()) push("system", std::move(text));
    return api_ok();
  }

  // Adds a system message. If a message has only "output_config", nothing is added here, because read_thinking() reads
  // this member.
  ApiStatus add_system(const ApiFields& message) {
    const Json* given = message.find("content");
    if (given != nullptr && given->is_string()) return add_system_text(*given);
    if (given == nullptr && message.find("output_config") != nullptr) return api_ok();
    if (given == nullptr || !given->is_array()) return message.wrong("content", "a string or a list of text blocks");
    TurnContent content;
    TRY(each_block(*given, message.param("content"), [&](const ApiFields& block, const std::string& type) -> ApiStatus {
      if (type == "tool_addition" || type == "tool_removal") return add_change(block, type, content);
      if (type != "text") return block.unsupported("type", R"("text", "tool_addition" or "tool_removal")");
      content.add_text(TRY(required_text(block, "text")));
      return api_ok();
    }));
    return add_system_text(content.take());
  }

  // Adds to `content` a text that tells the model which tool was added or removed.
  ApiStatus add_change(const ApiFields& block, const std::string& type, TurnContent& content) const {
    const bool addition = type == "tool_addition";
    const std::string name = TRY(name_of_changed(block, addition));
    if (!addition) {
      content.add_text("This tool is no longer available: " + name);
    } else if (const std::string definition = tool_definition(tools_, name); !definition.empty()) {
      content.add_text("This tool is available from now on: " + definition);
    }
    return api_ok();
  }

  // Returns the name of the tool that a block adds or removes. "tool" is {"type": "tool_reference", "name"} or, if
  // `may_be_defined`, {"type": "tool_definition", "definition"} with a whole tool.
  static ApiResult<std::string> name_of_changed(const ApiFields& block, bool may_be_defined) {
    const Json* json = TRY(block.object("tool"));
    if (json == nullptr) return block.wrong("tool", "an object with \"type\"");
    const ApiFields tool(*json, block.param("tool."));
    const std::string type = TRY(tool.string("type")).value_or("");
    if (type == "tool_reference") return required_text(tool, "name");
    if (!may_be_defined) return tool.unsupported("type", R"("tool_reference")");
    if (type != "tool_definition") return tool.unsupported("type", R"("tool_reference" or "tool_definition")");
    const Json* definition = TRY(tool.object("definition"));
    if (definition == nullptr) return tool.wrong("definition", "an object with \"name\" and \"input_schema\"");
    return required_text(ApiFields(*definition, tool.param("definition.")), "name");
  }

  Json& push(std::string_view role, Json content) {
    Json message = Json::object();
    message.set("role", role).set("content", std::move(content));
    out_.list.push_back(std::move(message));
    return out_.list.as_array().back();
  }

  ApiStatus add_user(const Json& blocks, const std::string& param) {
    TurnContent content;
    TurnContent result_images;  // images of tool results, which come before the user's own words
    const auto add_turn = [&] {
      result_images.add(std::exchange(content, TurnContent()));
      if (!result_images.empty()) push("user", result_images.take());
    };
    TRY(each_block(blocks, param, [&](const ApiFields& block, const std::string& type) -> ApiStatus {
      if (is_server_block(type)) return api_ok();
      if (type != "tool_result")
        return add_block(block, type, R"( or "tool_result")", images_allowed_, out_.images, content);
      if (!content.empty()) add_turn();
      return add_result(block, result_images);
    }));
    add_turn();
    return api_ok();
  }

  ApiStatus add_result(const ApiFields& block, TurnContent& images) {
    const std::string id = TRY(required_text(block, "tool_use_id"));
    const auto call = calls_.find(id);
    if (call == calls_.end()) return block.wrong("tool_use_id", "the id of a tool_use block in a message before it");
    const bool failed = TRY(block.boolean_or("is_error", false));
    TurnContent texts;
    const Json* given = block.find("content");
    if (given != nullptr && given->is_string()) {
      texts.add_text(given->as_string());
    } else if (given != nullptr && given->is_array()) {
      TRY(each_block(*given, block.param("content"), [&](const ApiFields& part, const std::string& type) -> ApiStatus {
        if (type == "tool_reference") return add_reference(part, texts);
        if (type != "image")
          return add_block(part, type, R"( or "tool_reference")", images_allowed_, out_.images, texts);
        texts.add_text(kImageBelow);
        return add_block(part, type, "", images_allowed_, out_.images, images);
      }));
    } else if (given != nullptr) {
      return block.wrong("content", "a string or a list of blocks");
    }
    const std::string text = texts.take().as_string();
    push("tool", failed ? std::string(kErrorMark) + text : text)
        .set("tool_call_id", short_id(id))
        .set("name", call->second);
    return api_ok();
  }

  ApiStatus add_reference(const ApiFields& part, TurnContent& content) const {
    const std::string definition = tool_definition(tools_, TRY(required_text(part, "tool_name")));
    if (definition.empty()) return part.wrong("tool_name", "the name of one of \"tools\"");
    content.add_text(definition);
    return api_ok();
  }

  ApiStatus add_assistant(const Json& blocks, const std::string& param) {
    TurnContent content("");
    TurnContent reasoning;
    Json calls = Json::array();
    TRY(each_block(blocks, param, [&](const ApiFields& block, const std::string& type) -> ApiStatus {
      if (is_server_block(type)) return api_ok();
      if (type == "thinking") return add_thinking(block, reasoning);
      if (type == "tool_use") return add_call(block, calls);
      if (type == "text" || type == "compaction")
        return add_block(block, type, "", images_allowed_, out_.images, content);
      return block.unsupported("type", R"("text", "thinking" or "tool_use" in the assistant's messages)");
    }));
    if (content.empty() && reasoning.empty() && calls.as_array().empty()) return api_ok();
    Json& message = push("assistant", content.take());
    if (!calls.as_array().empty()) message.set("tool_calls", std::move(calls));
    if (!reasoning.empty()) message.set("reasoning_content", reasoning.take());
    return api_ok();
  }

  static ApiStatus add_thinking(const ApiFields& block, TurnContent& reasoning) {
    std::string text = TRY(required_text(block, "thinking"));
    const std::string signature = TRY(block.string("signature")).value_or("");
    if (text.empty()) {
      std::optional<std::string> kept = thinking_of_signature(signature);
      if (!kept) return block.wrong("signature", "the signature of a thinking block, as it was sent");
      text = *std::move(kept);
    }
    if (!text.empty()) reasoning.add_text(text);
    return api_ok();
  }

  ApiStatus add_call(const ApiFields& block, Json& calls) {
    const std::string id = TRY(required_text(block, "id"));
    const std::string name = TRY(required_text(block, "name"));
    const Json* input = TRY(block.object("input"));
    if (input == nullptr) return block.wrong("input", "an object");
    Json function = Json::object();
    function.set("name", name).set("arguments", *input);
    Json call = Json::object();
    call.set("id", short_id(id)).set("type", "function").set("function", std::move(function));
    calls.push_back(std::move(call));
    calls_[id] = name;
    return api_ok();
  }

  const MessageTools& tools_;
  bool images_allowed_;
  ChatMessages out_;
  std::map<std::string, std::string> calls_;  // maps the ids of calls to the names of the called tools
};

}  // namespace

ApiResult<ChatMessages> read_turns(const ApiFields& body, const MessageTools& tools, bool images_allowed) {
  const Json* messages = TRY(body.array("messages"));
  if (messages == nullptr || messages->as_array().empty())
    return body.wrong("messages", "a list of at least one message");
  TurnReader reader(tools, images_allowed);
  if (body.find("system") != nullptr) TRY(reader.add_first(body));
  const Json::Array& list = messages->as_array();
  const auto is_user = [](const Json& message) { return is_of_role(message, "user"); };
  const auto last_user = std::find_if(list.rbegin(), list.rend(), is_user).base();
  for (auto message = list.begin(); message != list.end(); ++message) {
    // Skips a system message whose "clear_at" is "next_user_message" if a message of the user follows.
    const Json* clear_at = is_of_role(*message, "system") ? message->find("clear_at") : nullptr;
    if (clear_at != nullptr && *clear_at == Json("next_user_message") && message < last_user) continue;
    TRY(reader.add_message(*message, fmt::format("messages[{}]", message - list.begin())));
  }
  ChatMessages turns = reader.take();
  if (turns.list.as_array().empty()) return body.wrong("messages", "at least one message with a text");
  return turns;
}

}  // namespace tessera
