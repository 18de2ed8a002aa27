#include "tessera/options/shown_command.h"

#include <algorithm>
#include <cctype>

namespace tessera {

std::vector<std::string> ShownFlag::choices() const {
  std::vector<std::string> all;
  if (type.find('|') == std::string::npos) return all;
  for (std::size_t begin = 0; begin <= type.size();) {
    const std::size_t end = std::min(type.find('|', begin), type.size());
    std::string choice = type.substr(begin, end - begin);
    // A choice with a capital letter, such as DIR or cuda:N, is a placeholder for other values.
    const bool literal = std::none_of(choice.begin(), choice.end(), [](unsigned char c) { return std::isupper(c); });
    if (literal) all.push_back(std::move(choice));
    begin = end + 1;
  }
  return all;
}

bool ShownCommand::has_words() const {
  return std::any_of(flags.begin(), flags.end(), [](const ShownFlag& flag) { return !flag.word.empty(); });
}

}  // namespace tessera
