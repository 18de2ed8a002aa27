#include "tessera/text/chat_format.h"

#include <algorithm>
#include <utility>

namespace tessera {

Status ChatFormats::add(std::shared_ptr<const ChatFormat> format) {
  const auto has_name = [&](const auto& known) { return known->name() == format->name(); };
  if (std::ranges::any_of(formats_, has_name))
    return invalid_argument("a chat format named \"" + format->name() + "\" is registered already");
  formats_.push_back(std::move(format));
  return ok_status();
}

std::shared_ptr<const ChatFormat> ChatFormats::find(std::string_view name, ChatFormat::Part part) const {
  for (const auto& format : formats_)
    if (format->name() == name && format->finds(part)) return format;
  return nullptr;
}

std::vector<std::string_view> ChatFormats::names(ChatFormat::Part part) const {
  std::vector<std::string_view> names;
  for (const auto& format : formats_)
    if (format->finds(part)) names.emplace_back(format->name());
  return names;
}

}  // namespace tessera
