#include "tessera/model/weights/unread_tensors.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>
#include <variant>

namespace tessera {
namespace {

// Returns all tensors that at least one rank reads.
std::set<std::string_view> tensors_read(std::span<const WeightSpec> specs) {
  std::set<std::string_view> read;
  for (const WeightSpec& spec : specs)
    for (const std::vector<WeightPart>* parts : {&spec.parts, &spec.elsewhere})
      for (const WeightPart& part : *parts) {
        read.insert(part.tensor);
        read.insert(part.beside.begin(), part.beside.end());
        if (const auto* scaled = std::get_if<ScaledStorage>(&part.storage)) read.insert(scaled->scale);
        if (const auto* nibbles = std::get_if<NibbleStorage>(&part.storage)) read.insert(nibbles->shape);
      }
  return read;
}

bool any_begins(const std::set<std::string_view>& names, std::string_view prefix) {
  const auto next = names.lower_bound(prefix);
  return next != names.end() && next->starts_with(prefix);
}

// Returns the shortest prefix of `name` that ends with a dot and is not a prefix of any name in `read`. If there is no
// such prefix, returns the whole name.
std::string_view own_beginning(std::string_view name, const std::set<std::string_view>& read) {
  for (std::size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1))
    if (!any_begins(read, name.substr(0, dot + 1))) return name.substr(0, dot + 1);
  return name;
}

}  // namespace

std::vector<std::string_view> unread_gguf_tensors(const Checkpoint& checkpoint, std::span<const WeightSpec> specs) {
  const std::set<std::string_view> read = tensors_read(specs);
  std::set<std::string_view> unread;
  for (const std::string_view name : checkpoint.names()) {
    const std::string_view source = checkpoint.find(name)->source;
    if (!source.empty() && !read.contains(name)) unread.insert(source);
  }
  return {unread.begin(), unread.end()};
}

std::string unread_tensors(const Checkpoint& checkpoint, std::span<const WeightSpec> specs) {
  const std::set<std::string_view> read = tensors_read(specs);
  std::map<std::string_view, int> unread;
  for (const std::string_view name : checkpoint.names())
    if (!read.contains(name)) ++unread[own_beginning(name, read)];
  constexpr std::size_t kMostShown = 8;
  std::string text;
  std::size_t shown = 0;
  for (const auto& [beginning, count] : unread) {
    if (!text.empty()) text += ", ";
    if (++shown > kMostShown) return text + fmt::format("and {} more", unread.size() - kMostShown);
    text += beginning.ends_with('.') ? fmt::format("{}* ({})", beginning, count) : std::string(beginning);
  }
  return text;
}

}  // namespace tessera
