#include "tessera/model/hub/hub_gguf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "tessera/model/gguf/find_projector.h"

namespace tessera {
namespace {

constexpr std::string_view kGguf = ".gguf";

std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

// Returns the path without ".gguf" and without the member number of a split set: "m-Q8_0" for
// "m-Q8_0-00001-of-00003.gguf".
std::string_view stem_of(std::string_view name) {
  constexpr std::string_view kNumber = "-00001-of-00003";
  name.remove_suffix(kGguf.size());
  if (name.size() <= kNumber.size()) return name;
  const std::string_view tail = name.substr(name.size() - kNumber.size());
  const bool is_member = std::ranges::equal(tail, kNumber, [](unsigned char a, unsigned char b) {
    return std::isdigit(b) != 0 ? std::isdigit(a) != 0 : a == b;
  });
  return is_member ? name.substr(0, name.size() - kNumber.size()) : name;
}

// Returns whether `which`, the stem of a file's name or path, means the file with this stem.
bool is_named_by(std::string_view stem, std::string_view which) {
  return stem == which || stem.substr(stem.rfind('/') + 1) == which;
}

// Returns whether the stem is "NAME-TYPE", "NAME.TYPE" or the type itself.
bool has_type(std::string_view stem, const std::string& type) {
  const std::string text = upper(stem);
  if (!text.ends_with(type)) return false;
  if (text.size() == type.size()) return true;
  const char before = text[text.size() - type.size() - 1];
  return before == '-' || before == '.' || before == '/';
}

}  // namespace

std::optional<HubModel> parse_hub_name(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view id = text.substr(0, colon);
  if (!is_hub_id(id) || colon + 1 == text.size()) return std::nullopt;
  HubModel model{.id = std::string(id)};
  if (colon != std::string_view::npos) model.gguf = text.substr(colon + 1);
  return model;
}

Result<std::vector<std::string>> choose_gguf(std::span<const std::string> names, std::string_view which) {
  std::vector<std::string> stems;
  std::vector<std::string> fitting;
  for (const std::string& name : names) {
    if (!name.ends_with(kGguf) || is_projector_name(name)) continue;
    const std::string stem(stem_of(name));
    if (std::ranges::find(stems, stem) != stems.end()) continue;
    stems.push_back(stem);
    const bool is_named = which.ends_with(kGguf) ? is_named_by(stem, stem_of(which)) : has_type(stem, upper(which));
    if (is_named) fitting.push_back(stem);
  }
  if (fitting.empty())
    return not_found(fmt::format("no GGUF file fits \"{}\"; there {}", which,
                                 stems.empty() ? "are none" : fmt::format("are {}", fmt::join(stems, ", "))));
  if (fitting.size() > 1)
    return invalid_argument(fmt::format("\"{}\" fits several GGUF files; accepted: the name of one: {}.gguf", which,
                                        fmt::join(fitting, ".gguf, ")));
  std::vector<std::string> files;
  for (const std::string& name : names)
    if (name.ends_with(kGguf) && stem_of(name) == fitting.front()) files.push_back(name);
  std::ranges::sort(files);
  return files;
}

std::vector<std::string> projectors_of(std::span<const std::string> names) {
  std::vector<std::string> projectors;
  std::ranges::copy_if(names, std::back_inserter(projectors), is_projector_name);
  std::ranges::sort(projectors);
  return projectors;
}

Result<std::optional<std::string>> choose_projector(std::span<const std::string> names, std::string_view named) {
  using Chosen = std::optional<std::string>;
  const std::vector<std::string> projectors = projectors_of(names);
  if (named.empty()) return projectors.size() == 1 ? Chosen(projectors.front()) : Chosen();
  if (std::ranges::find(names, named) != names.end()) return Chosen(named);
  return not_found(fmt::format("there is no projector {}; there {}", named,
                               projectors.empty() ? "are none" : fmt::format("are {}", fmt::join(projectors, ", "))));
}

}  // namespace tessera
