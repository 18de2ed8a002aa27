#include "tessera/server/responses/response_items.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/server/api_job.h"
#include "tessera/server/images/content_parts.h"
#include "tessera/server/responses/compaction.h"
#include "tessera/server/responses/custom_input.h"
#include "tessera/server/responses/encoded_text.h"
#include "tessera/server/responses/response_tools.h"

namespace tessera {
namespace {

constexpr std::string_view kTypes =
    "\"message\", \"reasoning\", \"function_call\", \"function_call_output\", \"custom_tool_call\", "
    "\"custom_tool_call_output\", \"compaction\" or \"item_reference\"";

// Appends the texts of a list of parts, [{"type", "text"}, …].
ApiStatus append_texts(const ApiFields& item, std::string_view key, std::string& text) {
  const Json* parts = TRY(item.array(key));
  if (parts == nullptr) return api_ok();
  for (std::size_t i = 0; i < parts->as_array().size(); ++i) {
    const Json& part = parts->as_array()[i];
    const Json* piece = part.find("text");
    if (piece == nullptr || !piece->is_string())
      return invalid_field(fmt::format("{}[{}].text", item.param(key), i),
                           fmt::format("request: field \"{}[{}].text\" is {}; accepted: a string", item.param(key), i,
                                       shown_value(piece)));
    if (!text.empty()) text += "\n";
    text += piece->as_string();
  }
  return api_ok();
}

ApiResult<std::string> required_string(const ApiFields& item, std::string_view key) {
  std::optional<std::string> value = TRY(item.string(key));
  if (!value) return item.wrong(key, "a string");
  return *std::move(value);
}

std::string_view id_prefix(std::string_view type) {
  if (type == "reasoning") return "rs_";
  if (type == "compaction") return "cmp_";
  if (type == "function_call") return "fc_";
  if (type == "custom_tool_call") return "ctc_";
  if (type == "function_call_output") return "fco_";
  if (type == "custom_tool_call_output") return "ctco_";
  return "msg_";
}

}  // namespace

std::string_view item_type(const Json& item) {
  const Json* type = item.find("type");
  if (type != nullptr && type->is_string()) return type->as_string();
  return (type == nullptr || type->is_null()) && item.find("role") != nullptr ? "message" : "";
}

void ItemReader::add_instructions(std::string text) {
  out_.list.push_back(
      Json::object({{"role", kinds_.developer ? "developer" : "system"}, {"content", std::move(text)}}));
}

ApiStatus ItemReader::read(const Json& items, const std::string& param) {
  for (std::size_t i = 0; i < items.as_array().size(); ++i) {
    const Json& item = items.as_array()[i];
    const std::string path = fmt::format("{}[{}]", param, i);
    if (!item.is_object())
      return invalid_field(path, fmt::format("request: field \"{}\" is {}; accepted: an object with a \"type\"", path,
                                             shown_value(&item)));
    TRY(read_item(ApiFields(item, path + "."), std::string(item_type(item))));
  }
  return api_ok();
}

ApiStatus ItemReader::read_item(const ApiFields& item, const std::string& type) {
  TRY(item.string("id"));
  if (type == "message") return read_message(item);
  if (type == "function_call") return read_call(item, /*custom=*/false);
  if (type == "custom_tool_call") return read_call(item, /*custom=*/true);
  if (type == "function_call_output" || type == "custom_tool_call_output") return read_output(item);
  if (type == "reasoning") return read_reasoning(item);
  if (type == "compaction") return read_compaction(item);
  return item.wrong("type", kTypes);
}

ApiStatus ItemReader::read_message(const ApiFields& item) {
  std::string role = TRY(item.string("role")).value_or("");
  const bool known = role == "user" || role == "assistant" || role == "system" || role == "developer";
  if (!known) return item.wrong("role", R"("user", "assistant", "system" or "developer")");
  const bool by_assistant = role == "assistant";
  Json content = TRY(read_content(item, kinds_.images && !by_assistant, out_.images));
  if (by_assistant) {
    if (assistant_has_more()) end_assistant();
    assistant().set("content", std::move(content));
    return api_ok();
  }
  end_assistant();
  if (role == "developer" && !kinds_.developer) role = "system";
  out_.list.push_back(Json::object({{"role", role}, {"content", std::move(content)}}));
  return api_ok();
}

ApiStatus ItemReader::read_call(const ApiFields& item, bool custom) {
  const std::string id = TRY(required_string(item, "call_id"));
  const std::string name = TRY(required_string(item, "name"));
  const std::string space = TRY(item.string("namespace")).value_or("");
  if (!custom && item.find("arguments") == nullptr) return item.wrong("arguments", "the JSON text of an object");
  Json arguments = custom ? custom_arguments(TRY(required_string(item, "input"))) : TRY(read_call_arguments(item));
  if (!calls_.insert(id).second) return item.wrong("call_id", "an id that no other call has");
  Json function = Json::object({{"name", shown_tool_name(space, name)}, {"arguments", std::move(arguments)}});
  assistant();
  assistant_calls_.push_back(Json::object({{"id", id}, {"type", "function"}, {"function", std::move(function)}}));
  return api_ok();
}

ApiStatus ItemReader::read_output(const ApiFields& item) {
  const std::string id = TRY(required_string(item, "call_id"));
  if (!calls_.contains(id)) return item.wrong("call_id", "the id of a call before it");
  Json content = TRY(read_content(item, kinds_.images, out_.images, "output"));
  end_assistant();
  out_.list.push_back(Json::object({{"role", "tool"}, {"content", std::move(content)}, {"tool_call_id", id}}));
  return api_ok();
}

// Reads the assistant's reasoning from "encrypted_content", or without this field from "content". If the text is empty,
// reads the summary.
ApiStatus ItemReader::read_reasoning(const ApiFields& item) {
  std::string text;
  TRY(append_texts(item, "content", text));
  const std::optional<std::string> encoded = TRY(item.string("encrypted_content"));
  if (encoded) {
    std::optional<std::string> decoded = decode_text(*encoded);
    if (!decoded) return item.wrong("encrypted_content", "a text that this server made");
    text = *std::move(decoded);
  }
  if (text.empty()) TRY(append_texts(item, "summary", text));
  if (assistant_has_more()) end_assistant();
  if (!text.empty()) assistant().set("reasoning_content", text);
  return api_ok();
}

ApiStatus ItemReader::read_compaction(const ApiFields& item) {
  std::string text = TRY(compacted_text(item));
  end_assistant();
  out_.list.push_back(Json::object({{"role", "user"}, {"content", std::move(text)}}));
  return api_ok();
}

bool ItemReader::assistant_has_more() const {
  return !assistant_calls_.as_array().empty() ||
         (!assistant_.is_null() && !assistant_.find("content")->as_string().empty());
}

Json& ItemReader::assistant() {
  if (assistant_.is_null()) assistant_ = Json::object({{"role", "assistant"}, {"content", ""}});
  return assistant_;
}

void ItemReader::end_assistant() {
  if (assistant_.is_null()) return;
  Json calls = std::exchange(assistant_calls_, Json::array());
  if (!calls.as_array().empty()) assistant_.set("tool_calls", std::move(calls));
  out_.list.push_back(std::exchange(assistant_, Json()));
}

ChatMessages ItemReader::take() {
  end_assistant();
  return std::move(out_);
}

Json kept_item(const Json& item) {
  const std::string_view type = item_type(item);
  const Json* id = item.find("id");
  Json kept =
      Json::object({{"id", id != nullptr && id->is_string() ? *id : Json(make_id(id_prefix(type)))}, {"type", type}});
  if (type == "message" || type == "function_call" || type == "custom_tool_call") kept.set("status", "completed");
  for (const auto& [key, value] : item.as_object()) {
    if (key == "id" || key == "type" || value.is_null()) continue;
    if (key == "content" && type == "message" && value.is_string()) {
      const bool output = *item.find("role") == Json("assistant");
      kept.set("content",
               Json::Array{Json::object({{"type", output ? "output_text" : "input_text"}, {"text", value}})});
    } else {
      kept.set(key, value);
    }
  }
  return kept;
}

std::string kept_items(const Json& items) {
  Json kept = Json::array();
  for (const Json& item : items.as_array()) kept.push_back(kept_item(item));
  return kept.dump();
}

}  // namespace tessera
