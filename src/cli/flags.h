// Flags of commands, behind the library that parses them. Values arrive as text and are taken by a
// function; the first that is refused is the error.
//
//   FlagParser parser("Runs models.", "1.0");
//   CommandFlags& run = parser.add_command("run", "Run a model");
//   run.group("Model");
//   run.text("--model-path,--model", "DIR", "model folder", model_path);
//   ParsedFlags parsed = TRY(parser.parse(arguments));
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/cli/values.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera::cli {

class CommandFlags {
 public:
  using Take = std::function<Status(const std::string& flag, const std::string& text)>;

  CommandFlags(CLI::App& app, Status& error) : app_(app), error_(error) {}
  std::string name() const;
  std::vector<std::string> flags() const;  // each "--name"

  // Heading of the flags that follow in the help; "" leaves them out of it.
  void group(std::string name) { group_ = std::move(name); }
  void footer(const std::string& text);
  // The help flag, where the group stands.
  void help();

  // `names`: "--dtype" or "--model-path,--model"; errors use the first. `type` stands for the value in the help.
  void value(const std::string& names, const std::string& type, const std::string& help, Take take);
  // The same, but it may be given several times.
  void values(const std::string& names, const std::string& type, const std::string& help, Take take);
  // A word without flag.
  void word(const std::string& name, const std::string& help, Take take);

  void flag(const std::string& names, const std::string& help, bool& to);
  void text(const std::string& names, const std::string& type, const std::string& help, std::string& to);
  void integer(const std::string& names, const std::string& help, IntegerRange range, std::int64_t& to);
  // A ladder in any of its spellings.
  void sizes(const std::string& name, const std::string& help, std::vector<std::int64_t>& to);
  // `choices` in the order of the enumeration's values.
  template <class Enum>
  void choice(const std::string& names, const std::string& help, const std::vector<std::string_view>& choices,
              Enum& to) {
    std::string type;
    for (const std::string_view name : choices) type += (type.empty() ? "" : "|") + std::string(name);
    value(names, type, help, [&to, choices](const std::string& flag, const std::string& text) {
      to = static_cast<Enum>(TRY(parse_choice(flag, text, choices)));
      return ok_status();
    });
  }

 private:
  CLI::Option* add(const std::string& names, const std::string& type, const std::string& help, Take take);

  CLI::App& app_;
  Status& error_;
  std::string group_;
};

struct ParsedFlags {
  const CommandFlags* command = nullptr;  // null: there is only `show`
  std::string show;                       // the text of --help or --version
};

class FlagParser {
 public:
  FlagParser(const std::string& description, const std::string& version);
  ~FlagParser();

  CommandFlags& add_command(const std::string& name, const std::string& help);
  // Calls the functions of the flags that are there. Fails on an unknown command or flag and on a value
  // that is refused. Once.
  Result<ParsedFlags> parse(const std::vector<std::string>& arguments);

 private:
  std::string help_text() const;
  Status unknown_command() const;

  std::unique_ptr<CLI::App> app_;
  Status error_;
  std::deque<CommandFlags> commands_;
};

}  // namespace tessera::cli
