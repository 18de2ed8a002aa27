// The program's commands and flags as --help shows them, for the manual page and for shells' completion.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct ShownFlag {
  std::vector<std::string> names;  // "--model-path", "-h"; of a word without flag none
  std::string word{};              // the name of a word without flag
  std::string type{};              // what stands for the value; "" of a switch
  std::string help{};
  std::string group{};
  bool repeatable = false;

  // What the value may be, where `type` lists it ("a|b"); empty otherwise.
  std::vector<std::string> choices() const;
};

struct ShownCommand {
  std::string name;
  std::string help;
  std::string footer{};
  std::vector<ShownFlag> flags{};  // without those that --help leaves out

  bool has_words() const;
};

}  // namespace tessera
