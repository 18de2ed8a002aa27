#include "tessera/server/anthropic/content_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace tessera {
namespace {

// Reads {"type": "base64", "media_type", "data"} or {"type": "url", "url"}. The image's bytes, not media_type, decide
// its type.
ApiResult<GivenImage> read_image(const ApiFields& block) {
  const Json* source = TRY(block.object("source"));
  if (source == nullptr) return block.wrong("source", "an object with \"type\" and \"data\" or \"url\"");
  const ApiFields fields(*source, block.param("source."));
  const std::string type = TRY(fields.string("type")).value_or("");
  if (type != "base64" && type != "url") return fields.unsupported("type", R"("base64" or "url")");
  const bool encoded = type == "base64";
  const std::string_view key = encoded ? "data" : "url";
  const Json* text = fields.find(key);
  if (text == nullptr || !text->is_string()) return fields.wrong(key, "a string");
  return GivenImage{.text = text->as_string(), .may_be_base64 = encoded, .param = fields.param(key)};
}

ApiStatus add_title(const ApiFields& block, TurnContent& content) {
  for (const std::string_view key : {"title", "source", "context"}) {
    const Json* value = block.find(key);
    if (value != nullptr && value->is_string()) content.add_text(fmt::format("{}: {}", key, value->as_string()));
  }
  return api_ok();
}

// Adds the texts in a block's content, which is a string or a list of text blocks.
ApiStatus add_texts(const ApiFields& holder, TurnContent& content) {
  const Json* texts = holder.find("content");
  if (texts != nullptr && texts->is_string()) {
    content.add_text(texts->as_string());
    return api_ok();
  }
  if (texts == nullptr || !texts->is_array()) return holder.wrong("content", "a string or a list of text blocks");
  return each_block(*texts, holder.param("content"), [&](const ApiFields& inner, const std::string& type) -> ApiStatus {
    if (type != "text") return inner.unsupported("type", "\"text\"");
    content.add_text(TRY(required_text(inner, "text")));
    return api_ok();
  });
}

ApiStatus add_document(const ApiFields& block, TurnContent& content) {
  TRY(add_title(block, content));
  const Json* source = TRY(block.object("source"));
  if (source == nullptr) return block.wrong("source", "an object with \"type\"");
  const ApiFields fields(*source, block.param("source."));
  const std::string type = TRY(fields.string("type")).value_or("");
  if (type == "content") return add_texts(fields, content);
  if (type != "text") return fields.unsupported("type", R"("text" or "content": this server reads no other documents)");
  content.add_text(TRY(required_text(fields, "data")));
  return api_ok();
}

}  // namespace

ApiStatus each_block(const Json& blocks, const std::string& param,
                     const std::function<ApiStatus(const ApiFields& block, const std::string& type)>& take) {
  for (std::size_t i = 0; i < blocks.as_array().size(); ++i) {
    const Json& block = blocks.as_array()[i];
    const std::string path = fmt::format("{}[{}]", param, i);
    if (!block.is_object()) {
      return invalid_field(path, fmt::format("request: field \"{}\" is {}; accepted: an object with \"type\"", path,
                                             shown_value(&block)));
    }
    const ApiFields fields(block, path + ".");
    const std::optional<std::string> type = TRY(fields.string("type"));
    if (!type) return fields.wrong("type", "a string");
    TRY(take(fields, *type));
  }
  return api_ok();
}

bool is_of_role(const Json& message, std::string_view role) {
  const Json* given = message.is_object() ? message.find("role") : nullptr;
  return given != nullptr && *given == Json(role);
}

ApiResult<std::string> required_text(const ApiFields& block, std::string_view key) {
  std::optional<std::string> text = TRY(block.string(key));
  if (!text) return block.wrong(key, "a string");
  return *std::move(text);
}

bool is_server_block(std::string_view type) {
  constexpr std::string_view kTypes[] = {"redacted_thinking", "server_tool_use",  "mcp_tool_use",
                                         "mcp_tool_result",   "mcp_tool_listing", "fallback"};
  return type.ends_with("_tool_result") || std::ranges::find(kTypes, type) != std::end(kTypes);
}

ApiStatus add_block(const ApiFields& block, std::string_view type, std::string_view others, bool images_allowed,
                    std::vector<GivenImage>& images, TurnContent& content) {
  if (type == "text") {
    content.add_text(TRY(required_text(block, "text")));
  } else if (type == "document") {
    return add_document(block, content);
  } else if (type == "search_result") {
    TRY(add_title(block, content));
    return add_texts(block, content);
  } else if (type == "compaction") {  // the text is null if there was nothing to compact
    if (const std::optional<std::string> text = TRY(block.string("content"))) content.add_text(*text);
  } else if (type == "image" && images_allowed) {
    images.push_back(TRY(read_image(block)));
    content.add_image();
  } else if (type == "image") {
    return block.unsupported("type", "\"text\", as this model reads no images");
  } else {
    return block.unsupported("type",
                             fmt::format(R"("text", "image", "document", "search_result", "compaction"{})", others));
  }
  return api_ok();
}

}  // namespace tessera
