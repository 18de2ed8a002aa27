// Flags of commands, behind the library that parses them. Values arrive as text, from the command line or else from
// the file that --config names, and are taken by a function; the first that is refused is the error.
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
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/options/config_file.h"
#include "tessera/options/shown_command.h"
#include "tessera/options/values.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera {

// Stands for the value of a secret flag wherever values are shown, and is not taken for one.
inline constexpr std::string_view kLeftOut = "(left out)";

enum class FlagSource : std::uint8_t { kDefault, kFile, kCommandLine, kEnvironment };

// A flag as parsing left it.
struct FlagValue {
  std::string flag;  // "--page-size"
  Json value;        // as a configuration file has it; null: not given, and the default is not for a flag to say
  FlagSource source = FlagSource::kDefault;
};

class CommandFlags {
 public:
  using Take = std::function<Status(const std::string& flag, const std::string& text)>;

  explicit CommandFlags(CLI::App& app) : app_(app) {}
  std::string name() const;
  std::vector<std::string> flags() const;  // each "--name"
  // Appends the names of flags with values that the help leaves out.
  void append_hidden(std::vector<std::string>& names) const;
  // The value of every flag but --help; once they are parsed.
  std::vector<FlagValue> flag_values() const;

  // Heading of the flags that follow in the help. "" leaves them out of it, and out of flag_values() where they are not
  // given.
  void group(std::string name) { group_ = std::move(name); }
  const std::string& group() const { return group_; }
  void footer(const std::string& text);
  // The help flag, where the group stands.
  void help();

  // `names`: "--dtype" or "--model-path,--model"; errors use the first. "--model-path,--model,MODEL" is also taken from
  // a word without flag, called MODEL in the help. `type` stands for the value in the help, and says
  // what a configuration file has: "N" and "1" whole numbers, "X" numbers, "BYTES" and "COUNT" whole numbers or
  // strings, "LIST" any of these or several, anything else strings. `initial`: what it is if it is not given, where a
  // flag can say it.
  void value(const std::string& names, const std::string& type, const std::string& help, Take take, Json initial = {});
  // Adds a flag like value() does that may be given several times.
  void values(const std::string& names, const std::string& type, const std::string& help, Take take);
  // Makes the flag added last a secret one: flag_values() has kLeftOut instead of what was given. `instead`: other ways
  // to give it, for errors.
  void keep_secret(const std::string& instead);
  // Adds a word without flag. `type` is like value()'s, or "".
  void word(const std::string& name, const std::string& type, const std::string& help, Take take);

  // "--flag" or "--flag=true", and "--flag=false" against a configuration file.
  void flag(const std::string& names, const std::string& help, bool& to);
  void text(const std::string& names, const std::string& type, const std::string& help, std::string& to);
  void integer(const std::string& names, const std::string& help, IntegerRange range, std::int64_t& to);
  // A whole number that may have one of vLLM's suffixes: "32k", "32K".
  // `also`: a further number that is accepted, beside the range.
  void count(const std::string& names, const std::string& help, IntegerRange range, std::int64_t& to,
             std::optional<std::int64_t> also = {});
  // A ladder in any of its spellings.
  void sizes(const std::string& name, const std::string& help, std::vector<std::int64_t>& to);
  // Names, as "a,b" or one after another.
  void names(const std::string& name, const std::string& help, std::vector<std::string>& to);
  // `choices` in the order of the enumeration's values.
  template <class Enum>
  void choice(const std::string& names, const std::string& help, const std::vector<std::string_view>& choices,
              Enum& to) {
    std::string type;
    for (const std::string_view name : choices) type += (type.empty() ? "" : "|") + std::string(name);
    value(
        names, type, help,
        [&to, choices](const std::string& flag, const std::string& text) {
          to = static_cast<Enum>(TRY(parse_choice(flag, text, choices)));
          return ok_status();
        },
        choices[static_cast<std::size_t>(to)]);
  }
  // A file with values for the flags that the command line does not give. After the other flags.
  void config_file(const std::string& name, const std::string& help);

  ShownCommand shown() const;

  // Takes what was given, here and in the configuration file.
  Status take_all();
  // Takes the values that `config`, the text of a configuration file, gives; `name` stands for the file in errors.
  // Instead of a command line, once.
  Status take_config(const std::string& config, const std::string& name);
  // Where an error about an unknown flag says that the known ones are listed, instead of the command's help.
  void listed_in(std::string place) { listed_in_ = std::move(place); }

 private:
  // A flag or a word.
  struct Entry {
    std::string name;                // the first
    std::vector<std::string> names;  // each "--name"; of a word none
    std::string type;                // "" of a switch
    bool repeatable = false;
    bool secret = false;
    bool hidden = false;    // not in the help
    std::string instead{};  // of a secret one
    Take take{};
    Json initial{};
    std::vector<std::string> texts{};  // given
    std::function<Json()> taken{};     // what they came to, where the texts do not show it
    FlagSource source = FlagSource::kDefault;
    std::string place{};  // "file:line", if the configuration file has it
  };
  Entry& add(const std::string& names, const std::string& type, Take take);
  CLI::Option* add_option(const std::string& names, const std::string& help, Entry& entry);
  Status take_file(const std::string& path);
  Status take_texts();
  Status take_from_file(const std::string& path, const ConfigEntry& given);

  CLI::App& app_;
  std::string group_;
  std::string listed_in_;
  std::deque<Entry> entries_;  // in order; addresses stay
  const Entry* config_file_ = nullptr;
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
  // Calls the functions of the flags that are given, in the order in which they were added. Fails on an unknown
  // command or flag, on a value that is refused and on a configuration file that is wrong. Once.
  Result<ParsedFlags> parse(const std::vector<std::string>& arguments);

  // The program's help, or that of a command.
  Result<std::string> help_of(const std::string& command) const;
  std::vector<ShownCommand> shown() const;

 private:
  Status unknown_command(const std::string& name) const;

  std::unique_ptr<CLI::App> app_;
  std::deque<CommandFlags> commands_;
};

}  // namespace tessera
