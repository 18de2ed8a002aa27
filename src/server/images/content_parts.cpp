#include "tessera/server/images/content_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

namespace tessera {
namespace {

Json image_part() {
  Json part = Json::object();
  part.set("type", "image");
  return part;
}

// Refuses fields other than `known`, because they would change what the model sees.
ApiStatus allow_only(const ApiFields& fields, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : fields.members()) {
    if (value.is_null() || std::find(known.begin(), known.end(), name) != known.end()) continue;
    return fields.unsupported(name, "none");
  }
  return api_ok();
}

ApiStatus read_detail(const ApiFields& fields, GivenImage& image) {
  const std::string detail = TRY(fields.string("detail")).value_or("auto");
  if (detail != "low" && detail != "high" && detail != "auto")
    return fields.wrong("detail", R"("low", "high" or "auto")");
  image.low_detail = detail == "low";
  return api_ok();
}

// Reads {"type": "image_url", "image_url": {"url": …, "detail": …}}. The value of "image_url" may also be a text.
ApiResult<GivenImage> read_image_url(const ApiFields& part) {
  const Json* source = part.find("image_url");
  if (source == nullptr) return part.wrong("image_url", "an object with \"url\"");
  return read_image_source(*source, part.param("image_url"));
}

// Reads {"type": "input_image", "image_url": "…", "detail": …}.
ApiResult<GivenImage> read_input_image(const ApiFields& part) {
  if (part.find("file_id") != nullptr) return part.unsupported("file_id", "\"image_url\" instead");
  const Json* source = part.find("image_url");
  if (source == nullptr || !source->is_string()) return part.wrong("image_url", "a URL");
  GivenImage image{.text = source->as_string(), .param = part.param("image_url")};
  TRY(read_detail(part, image));
  return image;
}

ApiResult<Json> read_parts(const Json::Array& parts, const std::string& param, bool images_allowed,
                           std::vector<GivenImage>& images) {
  Json list = Json::array();
  std::string joined;
  bool has_images = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].is_object()) {
      return invalid_field(
          param, fmt::format("request: field \"{}[{}]\" is {}; accepted: {{\"type\": \"text\", \"text\": …}}", param, i,
                             shown_value(&parts[i])));
    }
    const ApiFields part(parts[i], fmt::format("{}[{}].", param, i));
    const std::string type = TRY(part.string("type")).value_or("");
    const bool is_image = type == "image_url" || type == "input_image";
    if (is_image && images_allowed) {
      images.push_back(type == "image_url" ? TRY(read_image_url(part)) : TRY(read_input_image(part)));
      list.push_back(image_part());
      has_images = true;
      continue;
    }
    if (is_image)
      return part.unsupported("type", R"("text", "input_text" or "output_text", as this model reads no images)");
    if (type != "text" && type != "input_text" && type != "output_text")
      return part.unsupported("type", images_allowed
                                          ? R"("text", "input_text", "output_text", "image_url" or "input_image")"
                                          : R"("text", "input_text" or "output_text")");
    const std::optional<std::string> piece = TRY(part.string("text"));
    if (!piece) return part.wrong("text", "a string");
    if (i > 0) joined += '\n';
    joined += *piece;
    list.push_back(text_part(*piece));
  }
  return has_images ? std::move(list) : Json(std::move(joined));
}

}  // namespace

Json text_part(std::string text) {
  Json part = Json::object();
  part.set("type", "text").set("text", std::move(text));
  return part;
}

ApiResult<GivenImage> read_image_source(const Json& source, const std::string& param) {
  if (source.is_string()) return GivenImage{.text = source.as_string(), .param = param};
  if (!source.is_object()) {
    return invalid_field(param, fmt::format("request: field \"{}\" is {}; accepted: an object with \"url\"", param,
                                            shown_value(&source)));
  }
  const ApiFields fields(source, param + ".");
  TRY(allow_only(fields, {"url", "detail"}));
  const Json* url = fields.find("url");
  if (url == nullptr || !url->is_string()) return fields.wrong("url", "a string");
  GivenImage image{.text = url->as_string(), .param = fields.param("url")};
  TRY(read_detail(fields, image));
  return image;
}

ApiResult<Json> read_content(const ApiFields& message, bool images_allowed, std::vector<GivenImage>& images,
                             std::string_view key) {
  const Json* content = message.find(key);
  if (content != nullptr && content->is_string()) return *content;
  if (content != nullptr && content->is_array())
    return read_parts(content->as_array(), message.param(key), images_allowed, images);
  return message.wrong(
      key, images_allowed ? "a string or a list of text and image parts" : "a string or a list of text parts");
}

void prepend_text(const std::string& text, Json& content) {
  if (content.is_array()) {
    content.as_array().insert(content.as_array().begin(), text_part(text));
  } else {
    content = Json(text + content.as_string());
  }
}

void append_text(const std::string& text, Json& content) {
  if (content.is_array()) {
    content.push_back(text_part(text));
  } else {
    content = Json(content.as_string() + text);
  }
}

}  // namespace tessera
