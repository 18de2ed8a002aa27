#include "tessera/options/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "tessera/options/known_flags.h"
#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

// Flags that take several values one after another without being repeated.
constexpr std::array<std::string_view, 7> kListFlags = {"--piecewise-cuda-graph-tokens",
                                                        "--cuda-graph-bs",
                                                        "--cuda-graph-split-ops",
                                                        "--cuda-graph-disable-passes",
                                                        "--served-model-name",
                                                        "--num-tokens",
                                                        "--batch-size"};

// vLLM's flags with one dash and two letters, which the parser would read as two flags.
constexpr std::array<std::string_view, 3> kTwoLetterFlags = {"-tp", "-pp", "-dp"};

bool is_two_letter_flag(std::string_view argument) {
  const std::string_view name = argument.substr(0, argument.find('='));
  return std::ranges::find(kTwoLetterFlags, name) != kTwoLetterFlags.end();
}

// Repeats a list flag before each of its values, and writes vLLM's two-letter flags with two dashes. Splits "--flag="
// from its empty value, because the parser would otherwise take the next word as the value.
std::vector<std::string> spread(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  const std::string* list = nullptr;
  bool first_value = false;
  for (const std::string& argument : arguments) {
    if (list != nullptr && !argument.starts_with("--") && !is_two_letter_flag(argument)) {
      if (!first_value) words.push_back(*list);
      first_value = false;
      words.push_back(argument);
      continue;
    }
    list = std::find(kListFlags.begin(), kListFlags.end(), argument) != kListFlags.end() ? &argument : nullptr;
    first_value = list != nullptr;
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      words.push_back(argument.substr(0, argument.size() - 1));
      words.emplace_back();
    } else {
      words.push_back(is_two_letter_flag(argument) ? "-" + argument : argument);
    }
  }
  return words;
}

// Returns the first flag among the arguments that is in `hidden` and is used wrongly: it has no value, or it is given
// more than once. Returns "" if there is no such flag.
std::string miscounted(const std::vector<std::string>& arguments, const std::vector<std::string>& hidden) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string flag = arguments[i].substr(0, arguments[i].find('='));
    if (std::ranges::find(hidden, flag) == hidden.end()) continue;
    const bool has_value =
        flag.size() < arguments[i].size() || (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"));
    const auto same = [&](const std::string& other) { return other.substr(0, other.find('=')) == flag; };
    if (!has_value || std::ranges::count_if(arguments, same) > 1) return flag;
  }
  return "";
}

// Returns the error for a flag with too few or too many values. `message` is the parsing library's message. Users do
// not see it, because it shows internals and does not name flags that the help omits.
Status wrong_count(const std::string& message, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& hidden) {
  std::string flag = message.substr(0, message.find_first_of(": "));
  if (flag.empty()) flag = miscounted(arguments, hidden);
  if (!flag.starts_with('-')) flag.insert(0, "--");
  if (message.find("At Most") != std::string::npos)
    return invalid_argument(fmt::format("{}: given more than once", flag));
  return invalid_argument(fmt::format("{}: the value is missing", flag));
}

// Returns a help text with one empty line between its groups.
std::string spaced(std::string text) {
  for (std::size_t at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at)) text.erase(at, 1);
  return text;
}

}  // namespace

std::string CommandFlags::name() const { return app_.get_name(); }

std::vector<std::string> CommandFlags::flags() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

ShownCommand CommandFlags::shown() const {
  ShownCommand command{.name = name(), .help = app_.get_description(), .footer = app_.get_footer()};
  for (const CLI::Option* option : app_.get_options()) {
    if (option->get_group().empty()) continue;
    ShownFlag flag{.names = {}, .type = option->get_type_name(), .help = option->get_description()};
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    if (flag.names.empty()) flag.word = option->get_name(true);
    flag.group = option->get_group();
    flag.repeatable = option->get_items_expected_max() > 1;
    command.flags.push_back(std::move(flag));
  }
  return command;
}

void CommandFlags::footer(const std::string& text) { app_.footer(text); }
void CommandFlags::help() { app_.set_help_flag("--help,-h", "this text")->group(group_); }

CommandFlags::Entry& CommandFlags::add(const std::string& names, const std::string& type, Take take) {
  Entry& entry = entries_.emplace_back();
  entry.name = names.substr(0, names.find(','));
  for (std::size_t begin = 0; names.starts_with("--") && begin < names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    if (const std::string name = names.substr(begin, end - begin); name.starts_with("--")) entry.names.push_back(name);
    begin = end + 1;
  }
  entry.type = type;
  entry.hidden = group_.empty();
  entry.take = std::move(take);
  return entry;
}

CLI::Option* CommandFlags::add_option(const std::string& names, const std::string& help, Entry& entry) {
  const auto note = [&entry](const std::vector<std::string>& texts) {
    entry.texts = texts;
    return true;
  };
  return app_.add_option(names, note, help)->type_name(entry.type)->group(group_);
}

void CommandFlags::value(const std::string& names, const std::string& type, const std::string& help, Take take,
                         Json initial) {
  Entry& entry = add(names, type, std::move(take));
  entry.initial = std::move(initial);
  add_option(names, help, entry);
}

void CommandFlags::values(const std::string& names, const std::string& type, const std::string& help, Take take,
                          int most_words) {
  Entry& entry = add(names, type, std::move(take));
  entry.repeatable = true;
  add_option(names, help, entry)->expected(1, most_words)->take_all();
}

void CommandFlags::keep_secret(const std::string& instead) {
  entries_.back().secret = true;
  entries_.back().instead = instead;
}

void CommandFlags::word(const std::string& name, const std::string& type, const std::string& help, Take take) {
  add_option(name, help, add(name, type, std::move(take)));
}

void CommandFlags::flag(const std::string& names, const std::string& help, bool& to) {
  Entry& entry = add(names, "", [&to](const std::string& flag, const std::string& text) {
    static constexpr std::array<std::string_view, 2> kNames = {"false", "true"};
    to = TRY(parse_choice(flag, text, kNames)) == 1;
    return ok_status();
  });
  entry.initial = to;
  app_.add_flag(names, entry.texts, help)->group(group_);
}

void CommandFlags::text(const std::string& names, const std::string& type, const std::string& help, std::string& to) {
  value(
      names, type, help,
      [&to](const std::string& flag, const std::string& text) {
        if (text.empty()) return invalid_argument(fmt::format("{}: the value is empty", flag));
        to = text;
        return ok_status();
      },
      to.empty() ? Json() : Json(to));
}

void CommandFlags::integer(const std::string& names, const std::string& help, IntegerRange range, std::int64_t& to) {
  value(
      names, "N", help,
      [&to, range](const std::string& flag, const std::string& text) {
        to = TRY(parse_integer(flag, text, range));
        return ok_status();
      },
      to < range.min ? Json() : Json(to));
}

void CommandFlags::count(const std::string& names, const std::string& help, IntegerRange range, std::int64_t& to,
                         std::optional<std::int64_t> also) {
  value(
      names, "COUNT", help,
      [&to, range, also](const std::string& flag, const std::string& text) -> Status {
        if (also && text == std::to_string(*also)) {
          to = *also;
          return ok_status();
        }
        const Result<std::int64_t> number = parse_count(flag, text, range);
        if (number.ok()) {
          to = *number;
          return ok_status();
        }
        return also ? invalid_argument(fmt::format("{}, and {}", number.status().message(), *also)) : number.status();
      },
      to < range.min ? Json() : Json(to));
  entries_.back().taken = [&to] { return Json(to); };
}

void CommandFlags::sizes(const std::string& name, const std::string& help, std::vector<std::int64_t>& to) {
  values(name, "LIST", help, [&to](const std::string& flag, const std::string& text) {
    const std::vector<std::int64_t> more = TRY(parse_ladder({&text, 1}, flag));
    to.insert(to.end(), more.begin(), more.end());
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
    return ok_status();
  });
  entries_.back().taken = [&to] { return Json(Json::Array(to.begin(), to.end())); };
}

void CommandFlags::names(const std::string& name, const std::string& help, std::vector<std::string>& to) {
  values(name, "NAMES", help, [&to](const std::string& flag, const std::string& text) {
    const std::vector<std::string> more = TRY(parse_names(flag, text));
    to.insert(to.end(), more.begin(), more.end());
    return ok_status();
  });
  entries_.back().taken = [&to] { return Json(Json::Array(to.begin(), to.end())); };
}

void CommandFlags::config_file(const std::string& name, const std::string& help) {
  value(name, "FILE", help, [](const std::string& flag, const std::string& text) {
    if (text.empty()) return invalid_argument(fmt::format("{}: the value is empty", flag));
    return ok_status();
  });
  config_file_ = &entries_.back();
}

Status CommandFlags::take_all() {
  for (Entry& entry : entries_) {
    if (!entry.texts.empty()) entry.source = FlagSource::kCommandLine;
  }
  if (config_file_ != nullptr && !config_file_->texts.empty() && !config_file_->texts[0].empty())
    TRY(take_file(config_file_->texts[0]));
  return take_texts();
}

Status CommandFlags::take_config(const std::string& config, const std::string& name) {
  const std::vector<ConfigEntry> given = TRY(read_config_text(config, name));
  for (const ConfigEntry& entry : given) TRY(take_from_file(name, entry));
  return take_texts();
}

Status CommandFlags::take_texts() {
  for (Entry& entry : entries_) {
    for (const std::string& text : entry.texts) {
      Status taken =
          entry.secret && text == kLeftOut
              ? invalid_argument(fmt::format("{}: \"{}\" stands for a value that was not shown; give it by {}",
                                             entry.name, kLeftOut, entry.instead))
              : entry.take(entry.name, text);
      if (entry.source == FlagSource::kFile) taken = std::move(taken).with_context(entry.place);
      TRY(std::move(taken));
    }
  }
  return ok_status();
}

Status CommandFlags::take_file(const std::string& path) {
  const std::vector<ConfigEntry> file = TRY(read_config_file(path).with_context(config_file_->name));
  for (const ConfigEntry& given : file) TRY(take_from_file(path, given));
  return ok_status();
}

Status CommandFlags::take_from_file(const std::string& path, const ConfigEntry& given) {
  const std::string place = fmt::format("{}:{}", path, given.line);
  const std::string flag = flag_of_key(given.key);
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return std::find(e.names.begin(), e.names.end(), flag) != e.names.end();
  });
  if (entry == entries_.end()) return unknown_argument(name(), flag, flags(), listed_in_).with_context(place);
  if (&*entry == config_file_)
    return invalid_argument(fmt::format("{}: {}: a configuration file cannot name another", place, flag));
  if (!entry->place.empty())
    return invalid_argument(fmt::format("{}: {}: {} has it already", place, given.key, entry->place));
  entry->place = place;
  std::vector<std::string> texts = TRY(config_texts(given, entry->type, entry->repeatable).with_context(place));
  if (entry->source == FlagSource::kCommandLine || texts.empty()) return ok_status();
  entry->texts = std::move(texts);
  entry->source = FlagSource::kFile;
  return ok_status();
}

void CommandFlags::append_hidden(std::vector<std::string>& names) const {
  for (const Entry& entry : entries_) {
    if (entry.hidden && !entry.type.empty()) names.insert(names.end(), entry.names.begin(), entry.names.end());
  }
}

std::vector<FlagValue> CommandFlags::flag_values() const {
  std::vector<FlagValue> all;
  for (const Entry& entry : entries_) {
    if (entry.names.empty() || &entry == config_file_ || (entry.hidden && entry.texts.empty())) continue;
    FlagValue value{entry.name, entry.initial, entry.source};
    if (!entry.texts.empty() && entry.secret) {
      value.value = Json(kLeftOut);
    } else if (!entry.texts.empty()) {
      value.value = entry.taken ? entry.taken() : config_value(entry.texts, entry.type, entry.repeatable);
    }
    all.push_back(std::move(value));
  }
  return all;
}

FlagParser::FlagParser(const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, "tessera")) {
  app_->set_help_flag("--help,-h", "this text");
  app_->set_version_flag("--version,-v", "tessera " + version, "the version of this program");
  app_->allow_extras();
  app_->require_subcommand(0, 1);
  app_->get_formatter()->column_width(46);
  app_->get_formatter()->label("SUBCOMMAND", "COMMAND");
  app_->footer("tessera COMMAND --help lists a command's flags.");
}

FlagParser::~FlagParser() = default;

CommandFlags& FlagParser::add_command(const std::string& name, const std::string& help) {
  CLI::App* app = app_->add_subcommand(name, help);
  app->group("Commands");
  app->allow_extras();
  return commands_.emplace_back(*app);
}

Result<ParsedFlags> FlagParser::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = spread(arguments);
  if (words.empty()) words.emplace_back("--help");
  std::reverse(words.begin(), words.end());
  try {
    app_->parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return ParsedFlags{.command = nullptr, .show = spaced(app_->help())};
  } catch (const CLI::CallForVersion& version) {
    return ParsedFlags{.command = nullptr, .show = std::string(version.what()) + "\n"};
  } catch (const CLI::ArgumentMismatch& error) {
    std::vector<std::string> hidden;
    for (const CommandFlags& command : commands_) command.append_hidden(hidden);
    return wrong_count(error.what(), arguments, hidden);
  } catch (const CLI::ParseError& error) {
    return invalid_argument(error.what());
  }
  const std::vector<CLI::App*> chosen = app_->get_subcommands();
  if (chosen.empty()) {
    const std::vector<std::string> extras = app_->remaining();
    return unknown_command(extras.empty() ? "" : extras[0]);
  }
  const auto command = std::find_if(commands_.begin(), commands_.end(),
                                    [&](const CommandFlags& c) { return c.name() == chosen[0]->get_name(); });
  if (const std::vector<std::string> extras = chosen[0]->remaining(); !extras.empty())
    return unknown_argument(command->name(), extras[0], command->flags());
  TRY(command->take_all());
  return ParsedFlags{.command = &*command, .show = ""};
}

Result<std::string> FlagParser::help_of(const std::string& command) const {
  if (command.empty()) {
    return spaced(app_->get_formatter()->make_help(app_.get(), "tessera", CLI::AppFormatMode::Normal));
  }
  try {
    return spaced(app_->get_subcommand(command)->help("tessera"));
  } catch (const CLI::OptionNotFound&) {
    return unknown_command(command);
  }
}

std::vector<ShownCommand> FlagParser::shown() const {
  std::vector<ShownCommand> all;
  all.reserve(commands_.size());
  for (const CommandFlags& command : commands_) all.push_back(command.shown());
  return all;
}

Status FlagParser::unknown_command(const std::string& name) const {
  std::vector<std::string> names;
  names.reserve(commands_.size());
  for (const CommandFlags& command : commands_) names.push_back(command.name());
  const std::string accepted = fmt::format("accepted are {}", fmt::join(names, ", "));
  if (name.starts_with('-')) return invalid_argument(fmt::format("no command stands before {}; {}", name, accepted));
  if (name.empty()) return invalid_argument("no command is given; " + accepted);
  return invalid_argument(fmt::format("\"{}\" is no command; {}", name, accepted));
}

}  // namespace tessera
