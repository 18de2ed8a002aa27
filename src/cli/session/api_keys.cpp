#include "tessera/cli/session/api_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "tessera/base/json.h"

namespace tessera::cli {
namespace {

// Checks that an HTTP header can hold the key, that is, that the key has only visible characters.
Status check_key(std::string_view key, const std::string& where) {
  if (key.empty()) return invalid_argument(where + ": the key is empty");
  if (std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7f'; })) return ok_status();
  return invalid_argument(where +
                          ": the key has a blank or another character that is not accepted; letters, digits and "
                          "punctuation of ASCII are");
}

Status read_file(std::string_view flag, const std::string& path, std::vector<std::string>& keys) {
  const std::string text = TRY(read_text_file(path).with_context(flag));
  int number = 0;
  const std::size_t before = keys.size();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    TRY(check_key(line, fmt::format("{}: {}:{}", flag, path, number)));
    keys.push_back(std::move(line));
  }
  if (keys.size() == before) return invalid_argument(fmt::format("{}: {} has no key", flag, path));
  return ok_status();
}

// Removes keys that occur again, because the number of keys decides how clients are told apart.
std::vector<std::string> without_repeats(const std::vector<std::string>& keys) {
  std::vector<std::string> out;
  std::set<std::string_view> known;
  for (const std::string& key : keys)
    if (known.insert(key).second) out.push_back(key);
  return out;
}

}  // namespace

Result<std::vector<std::string>> read_api_keys(const KeySources& sources, const std::vector<std::string>& given,
                                               const std::string& file,
                                               const std::function<const char*(const char*)>& get) {
  std::vector<std::string> keys = given;
  for (const std::string& key : keys) TRY(check_key(key, std::string(sources.flag)));
  if (!file.empty()) TRY(read_file(sources.file_flag, file, keys));
  if (!keys.empty()) return without_repeats(keys);
  if (const char* const variable = get(sources.variable); variable != nullptr) {
    TRY(check_key(variable, std::string(sources.variable) + " in the environment"));
    keys.emplace_back(variable);
  }
  return keys;
}

bool is_secret_flag(std::string_view flag) {
  return flag == kApiKeys.flag || flag == kAdminApiKeys.flag || flag == "--ssl-keyfile-password";
}

void hide_api_keys(std::span<char*> arguments) {
  bool is_key = false;
  for (char* const argument : arguments) {
    const std::string_view word = argument;
    const std::string_view flag = word.substr(0, word.find('='));
    const bool joined = flag.size() < word.size() && is_secret_flag(flag);
    const std::size_t shown = is_key ? 0 : joined ? flag.size() + 1 : word.size();
    is_key = is_secret_flag(word);
    std::fill(argument + shown, argument + word.size(), '*');
  }
}

}  // namespace tessera::cli
