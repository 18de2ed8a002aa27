// Copies the tables of functions that plugins pass. A table of an older or newer version is converted to the engine's
// version.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// The size in bytes that a table had in the first version of this TESSERA_PLUGIN_ABI, up to the end of its last member.
// This size never changes. Later versions only append members, so plugins that were built earlier still load.
template <class Table>
inline constexpr std::size_t kFirstSize = 0;

// NOLINTBEGIN(bugprone-macro-parentheses): an argument is a type
#define TESSERA_FIRST_SIZE(Table, last) \
  template <>                           \
  inline constexpr std::size_t kFirstSize<Table> = offsetof(Table, last) + sizeof(Table::last)
// NOLINTEND(bugprone-macro-parentheses)

TESSERA_FIRST_SIZE(tessera_plugin_info, version);
TESSERA_FIRST_SIZE(tessera_plugin_operator, fuses);
TESSERA_FIRST_SIZE(tessera_plugin_planner, plan);
TESSERA_FIRST_SIZE(tessera_plugin_kernel, variant);
TESSERA_FIRST_SIZE(tessera_plugin_device, versions);
TESSERA_FIRST_SIZE(tessera_plugin_compiler, load);
TESSERA_FIRST_SIZE(tessera_plugin_pass, run);
TESSERA_FIRST_SIZE(tessera_plugin_family, tensor);
TESSERA_FIRST_SIZE(tessera_plugin_part, slice_size);
TESSERA_FIRST_SIZE(tessera_plugin_chat_format, release);

#undef TESSERA_FIRST_SIZE

// Copies `given` into the engine's version of the table. Members that an older version lacks become null.
// Returns kInvalidArgument if `given` is null, if it is smaller than the first version or larger than 64 KiB, or if it
// is of a newer version than the engine's and sets a member that the engine does not know.
template <class Table>
Result<Table> copy_table(const Table* given, std::string_view what) {
  constexpr std::size_t least = kFirstSize<Table>;
  static_assert(least > 0 && least <= sizeof(Table), "name the last member of the table's first version above");
  if (given == nullptr) return invalid_argument(fmt::format("the {} is null", what));
  if (given->size < least)
    return invalid_argument(
        fmt::format("the {}'s size is {}; {} or more is accepted (set it to its sizeof)", what, given->size, least));
  constexpr std::size_t kMost = 64 * 1024;
  if (given->size > kMost)
    return invalid_argument(fmt::format("the {}'s size is {}; set it to its sizeof", what, given->size));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (given->size > sizeof(Table) &&
      std::any_of(bytes + sizeof(Table), bytes + given->size, [](unsigned char byte) { return byte != 0; }))
    return invalid_argument(fmt::format("the {} has members that this engine does not know; take a newer one", what));
  Table table{};
  std::memcpy(&table, given, std::min(given->size, sizeof(Table)));
  table.size = sizeof(Table);
  return table;
}

// Returns kInvalidArgument if the member is null. The message names the table (`what`) and the member (`name`).
inline Status check_set(const void* member, std::string_view what, std::string_view name) {
  if (member != nullptr) return ok_status();
  return invalid_argument(fmt::format("the {} has no {}", what, name));
}
template <class R, class... Args>
Status check_set(R (*member)(Args...), std::string_view what, std::string_view name) {
  return check_set(reinterpret_cast<const void*>(member), what, name);
}

// Checks that a name begins with a letter or "_" and continues with letters, digits, "_", "." and "-".
inline Status check_word(const char* name, std::string_view what) {
  const std::string_view word = name == nullptr ? "" : name;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto may_follow = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-'; };
  constexpr std::size_t kLongest = 128;
  if (!word.empty() && word.size() <= kLongest && is_letter(word[0]) &&
      std::all_of(word.begin(), word.end(), may_follow))
    return ok_status();
  return invalid_argument(
      fmt::format("the {}'s name is \"{}\"; accepted is a word of at most {} letters, digits, \"_\","
                  " \".\" and \"-\"",
                  what, word.substr(0, kLongest), kLongest));
}

}  // namespace tessera::plugin
