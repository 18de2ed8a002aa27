#include "tessera/text/chat/chat_format.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

std::string_view without_end_space(std::string_view text) { return text.substr(0, text.find_last_not_of(" \n") + 1); }

}  // namespace

ReasoningStart ReasoningMarks::start(std::string_view prompt, std::string_view begun) const {
  const auto last = [&](const std::string& mark) { return mark.empty() ? std::string_view::npos : begun.rfind(mark); };
  const std::size_t opens = last(opening);
  const std::size_t closes = last(closing);
  const bool has_opened = opens != std::string_view::npos;
  const bool has_closed = closes != std::string_view::npos && (!has_opened || closes > opens);
  if (has_closed) return ReasoningStart::kBehind;
  const std::string_view mark = without_end_space(opening);
  const bool ends_open = !mark.empty() && without_end_space(prompt).ends_with(mark);
  return has_opened || ends_open ? ReasoningStart::kInside : ReasoningStart::kBefore;
}

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
