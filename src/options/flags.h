// Defines and parses the flags of commands. No other layer uses the parsing library. Each flag has a function that
// takes its value as text. The text comes from the command line. If the command line lacks the flag, the text comes
// from the file that --config names. If a function refuses a value, parsing ends with the function's error.
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

// flag_values() shows this text in place of a secret flag's value. A secret flag does not accept the text as a value.
inline constexpr std::string_view kLeftOut = "(left out)";

enum class FlagSource : std::uint8_t { kDefault, kFile, kCommandLine, kEnvironment };

// A flag after parsing.
struct FlagValue {
  std::string flag;  // "--page-size"
  Json value;        // in the form of a configuration file; null: not given, and the flag has no default of its own
  FlagSource source = FlagSource::kDefault;
};

class CommandFlags {
 public:
  using Take = std::function<Status(const std::string& flag, const std::string& text)>;

  explicit CommandFlags(CLI::App& app) : app_(app) {}
  std::string name() const;
  std::vector<std::string> flags() const;  // all names with dashes
  // Appends to `names` the names of all flags that take a value and that the help omits.
  void append_hidden(std::vector<std::string>& names) const;
  // Returns the value of every flag except --help and the flag that names the configuration file. Call it after
  // parsing.
  std::vector<FlagValue> flag_values() const;

  // Sets the heading under which the help lists the following flags. If it is "", the help omits them, and
  // flag_values() omits the flags that were not given.
  void group(std::string name) { group_ = std::move(name); }
  const std::string& group() const { return group_; }
  void footer(const std::string& text);
  // Adds the help flag to the current group.
  void help();

  // Adds a flag with a value. `names` is for example "--dtype" or "--model-path,--model". Errors use the first name.
  // With "--model-path,--model,MODEL" the value may also be a positional argument, called MODEL in the help. `type` is
  // the value's name in the help and its type in a configuration file: "N" and "1" stand for a whole number, "X" for a
  // number, "BYTES" and "COUNT" for a whole number or a string, "LIST" for a number, a string, or a list of them. Any
  // other type stands for a string. `initial` is the flag's default value, or null if it has none.
  void value(const std::string& names, const std::string& type, const std::string& help, Take take, Json initial = {});
  // Adds a flag that may be given several times. Each time, 1 to `most_words` values follow it.
  void values(const std::string& names, const std::string& type, const std::string& help, Take take,
              int most_words = 1);
  // Makes the most recently added flag secret: flag_values() shows kLeftOut instead of its value. If a user gives
  // kLeftOut as the value, the error contains `instead`, which names other ways to give the value.
  void keep_secret(const std::string& instead);
  // Adds a positional argument, which is a word without a flag. `type` is as in value(), or "".
  void word(const std::string& name, const std::string& type, const std::string& help, Take take);

  // Adds a switch. "--flag" and "--flag=true" turn it on. "--flag=false" turns it off, even if the configuration file
  // turns it on.
  void flag(const std::string& names, const std::string& help, bool& to);
  void text(const std::string& names, const std::string& type, const std::string& help, std::string& to);
  void integer(const std::string& names, const std::string& help, IntegerRange range, std::int64_t& to);
  // Adds a flag for a whole number that may have one of vLLM's suffixes: "32k", "32K". `also` is one more accepted
  // number outside the range.
  void count(const std::string& names, const std::string& help, IntegerRange range, std::int64_t& to,
             std::optional<std::int64_t> also = {});
  // Adds a flag for a list of sizes, in any form that parse_ladder() reads.
  void sizes(const std::string& name, const std::string& help, std::vector<std::int64_t>& to);
  // Adds a flag for a list of names: "a,b", or several words.
  void names(const std::string& name, const std::string& help, std::vector<std::string>& to);
  // Adds a flag whose value is one of `choices`, which are in the order of the enumerators.
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
  // Adds the flag that names a configuration file, whose values apply to flags that the command line does not give.
  // Call it after adding the other flags.
  void config_file(const std::string& name, const std::string& help);

  ShownCommand shown() const;

  // Passes all given values, from the command line and the configuration file, to the flags' functions.
  Status take_all();
  // Takes the flags' values from `config`, the text of a configuration file, not from a command line. Errors call the
  // file `name`. Call this function once.
  Status take_config(const std::string& config, const std::string& name);
  // Sets the place where users find the known flags, for errors about unknown flags. The default is the command's help.
  void listed_in(std::string place) { listed_in_ = std::move(place); }

 private:
  // A flag or a word.
  struct Entry {
    std::string name;                // the first name
    std::vector<std::string> names;  // all names with dashes; none for a word
    std::string type;                // "" for a switch
    bool repeatable = false;
    bool secret = false;
    bool hidden = false;    // omitted from the help
    std::string instead{};  // other ways to give a secret flag's value
    Take take{};
    Json initial{};
    std::vector<std::string> texts{};  // texts as they were given
    std::function<Json()> taken{};     // a function that returns the resulting value; null: `texts` show it
    FlagSource source = FlagSource::kDefault;
    std::string place{};  // "file:line", if the value is from the configuration file
  };
  Entry& add(const std::string& names, const std::string& type, Take take);
  CLI::Option* add_option(const std::string& names, const std::string& help, Entry& entry);
  Status take_file(const std::string& path);
  Status take_texts();
  Status take_from_file(const std::string& path, const ConfigEntry& given);

  CLI::App& app_;
  std::string group_;
  std::string listed_in_;
  std::deque<Entry> entries_;  // in the order of adding; a deque, so that addresses stay valid
  const Entry* config_file_ = nullptr;
};

struct ParsedFlags {
  const CommandFlags* command = nullptr;  // null: only `show` is set
  std::string show;                       // the text of --help or --version
};

class FlagParser {
 public:
  FlagParser(const std::string& description, const std::string& version);
  ~FlagParser();

  CommandFlags& add_command(const std::string& name, const std::string& help);
  // Calls the functions of the given flags in the order in which the flags were added. Returns an error for an unknown
  // command or flag, for a refused value, and for a wrong configuration file. Call it once.
  Result<ParsedFlags> parse(const std::vector<std::string>& arguments);

  // Returns the help text of a command. If `command` is "", returns the program's help text.
  Result<std::string> help_of(const std::string& command) const;
  std::vector<ShownCommand> shown() const;

 private:
  Status unknown_command(const std::string& name) const;

  std::unique_ptr<CLI::App> app_;
  std::deque<CommandFlags> commands_;
};

}  // namespace tessera
