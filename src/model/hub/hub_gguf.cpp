#include "tessera/model/hub/hub_gguf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
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

// Keeps only the stem that equals `path`. If no stem does, keeps only the stems outside of subfolders. If there are
// none either, keeps all stems.
void keep_nearest(std::vector<std::string>& stems, std::string_view path) {
  const auto is_named = [&](const std::string& stem) { return stem == path; };
  const auto is_outside = [](const std::string& stem) { return stem.find('/') == std::string::npos; };
  if (std::ranges::any_of(stems, is_named)) {
    std::erase_if(stems, std::not_fn(is_named));
  } else if (std::ranges::any_of(stems, is_outside)) {
    std::erase_if(stems, std::not_fn(is_outside));
  }
}

std::string_view folder_in(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : name.substr(0, slash);
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
  keep_nearest(fitting, which.ends_with(kGguf) ? stem_of(which) : std::string_view());
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

Result<std::optional<std::string>> choose_projector(std::span<const std::string> names, std::string_view named,
                                                    std::string_view model) {
  using Chosen = std::optional<std::string>;
  const std::vector<std::string> projectors = projectors_of(names);
  if (named.empty()) {
    for (const std::string_view folder : {folder_in(model), std::string_view()}) {
      std::vector<std::string> beside;
      std::ranges::copy_if(projectors, std::back_inserter(beside),
                           [&](const std::string& name) { return folder_in(name) == folder; });
      if (!beside.empty()) return beside.size() == 1 ? Chosen(beside.front()) : Chosen();
    }
    return Chosen();
  }
  if (std::ranges::find(names, named) != names.end()) return Chosen(named);
  return not_found(fmt::format("there is no projector {}; there {}", named,
                               projectors.empty() ? "are none" : fmt::format("are {}", fmt::join(projectors, ", "))));
}

}  // namespace tessera
