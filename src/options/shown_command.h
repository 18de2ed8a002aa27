// The program's commands and flags, as --help shows them. The manual page and the shell completion are generated from
// this description.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct ShownFlag {
  std::vector<std::string> names;  // "--model-path", "-h"; none for a positional argument
  std::string word{};              // the name of a positional argument
  std::string type{};              // the name of the value; "" for a switch
  std::string help{};
  std::string group{};
  bool repeatable = false;

  // Returns the accepted values if `type` lists them ("a|b"), otherwise an empty list.
  std::vector<std::string> choices() const;
};

struct ShownCommand {
  std::string name;
  std::string help;
  std::string footer{};
  std::vector<ShownFlag> flags{};  // without the flags that --help omits

  bool has_words() const;
};

}  // namespace tessera
