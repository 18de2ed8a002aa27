#include "tessera/server/openai/turn_content.h"

#include <utility>

#include "tessera/server/images/content_parts.h"

namespace tessera {

void TurnContent::add_text(std::string_view text) {
  if (parts_.empty() || parts_.back().is_image) {
    parts_.push_back({.text = std::string(text)});
  } else {
    parts_.back().text += separator_;
    parts_.back().text += text;
  }
}

void TurnContent::add_image() {
  parts_.push_back({.is_image = true});
  has_images_ = true;
}

void TurnContent::add(const TurnContent& more) {
  for (const Part& part : more.parts_) {
    if (part.is_image) {
      add_image();
    } else {
      add_text(part.text);
    }
  }
}

void TurnContent::add_content(const Json& content) {
  if (content.is_string()) return add_text(content.as_string());
  for (const Json& part : content.as_array()) {
    if (const Json* text = part.find("text")) {
      add_text(text->as_string());
    } else {
      add_image();
    }
  }
}

Json TurnContent::take() {
  std::vector<Part> parts = std::exchange(parts_, {});
  if (!std::exchange(has_images_, false)) return parts.empty() ? Json("") : Json(std::move(parts.front().text));
  Json list = Json::array();
  for (Part& part : parts)
    list.push_back(part.is_image ? Json::object({{"type", "image"}}) : text_part(std::move(part.text)));
  return list;
}

}  // namespace tessera
