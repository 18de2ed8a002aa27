#include "tessera/cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "tessera/cli/known_flags.h"
#include "tessera/piecewise/ladder.h"

namespace tessera::cli {
namespace {

// Flags whose values may follow one another without repeating the flag.
constexpr std::array<std::string_view, 5> kListFlags = {"--piecewise-cuda-graph-tokens", "--cuda-graph-bs",
                                                        "--cuda-graph-split-ops", "--num-tokens", "--batch-size"};

// Repeats a list flag before each of its values, and splits "--flag=" from its empty value: the parser
// would take the next word for it.
std::vector<std::string> spread(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  const std::string* list = nullptr;
  bool first_value = false;
  for (const std::string& argument : arguments) {
    if (list != nullptr && !argument.starts_with("--")) {
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
      words.push_back(argument);
    }
  }
  return words;
}

// A flag with too few or too many values; the library's own words are about its internals.
Status wrong_count(const std::string& message) {
  std::string flag = message.substr(0, message.find_first_of(": "));
  if (!flag.starts_with('-')) flag.insert(0, "--");
  if (message.find("override") != std::string::npos)
    return invalid_argument(fmt::format("{}: a value is given, and none is taken", flag));
  if (message.find("At Most") != std::string::npos)
    return invalid_argument(fmt::format("{}: given more than once", flag));
  return invalid_argument(fmt::format("{}: the value is missing", flag));
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

void CommandFlags::footer(const std::string& text) { app_.footer(text); }
void CommandFlags::help() { app_.set_help_flag("--help,-h", "this text")->group(group_); }

CLI::Option* CommandFlags::add(const std::string& names, const std::string& type, const std::string& help, Take take) {
  const auto take_all = [this, flag = names.substr(0, names.find(',')),
                         take = std::move(take)](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      if (Status status = take(flag, text); !status.ok() && error_.ok()) error_ = std::move(status);
    }
    return true;
  };
  return app_.add_option(names, take_all, help)->type_name(type)->group(group_);
}

void CommandFlags::value(const std::string& names, const std::string& type, const std::string& help, Take take) {
  add(names, type, help, std::move(take));
}

void CommandFlags::values(const std::string& names, const std::string& type, const std::string& help, Take take) {
  add(names, type, help, std::move(take))->expected(1)->take_all();
}

void CommandFlags::word(const std::string& name, const std::string& help, Take take) {
  add(name, "", help, std::move(take));
}

void CommandFlags::flag(const std::string& names, const std::string& help, bool& to) {
  app_.add_flag(names, to, help)
      ->group(group_)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->disable_flag_override();
}

void CommandFlags::text(const std::string& names, const std::string& type, const std::string& help, std::string& to) {
  value(names, type, help, [&to](const std::string& flag, const std::string& text) {
    if (text.empty()) return invalid_argument(fmt::format("{}: the value is empty", flag));
    to = text;
    return ok_status();
  });
}

void CommandFlags::integer(const std::string& names, const std::string& help, IntegerRange range, std::int64_t& to) {
  value(names, "N", help, [&to, range](const std::string& flag, const std::string& text) {
    to = TRY(parse_integer(flag, text, range));
    return ok_status();
  });
}

void CommandFlags::sizes(const std::string& name, const std::string& help, std::vector<std::int64_t>& to) {
  values(name, "LIST", help, [&to](const std::string& flag, const std::string& text) {
    const std::vector<std::int64_t> more = TRY(parse_ladder({&text, 1}, flag));
    to.insert(to.end(), more.begin(), more.end());
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
    return ok_status();
  });
}

FlagParser::FlagParser(const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, "tessera")) {
  app_->set_help_flag("--help,-h", "this text");
  app_->set_version_flag("--version", "tessera " + version, "the version of this program");
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
  return commands_.emplace_back(*app, error_);
}

Result<ParsedFlags> FlagParser::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = spread(arguments);
  if (words.empty()) words.emplace_back("--help");
  std::reverse(words.begin(), words.end());
  try {
    app_->parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return ParsedFlags{.command = nullptr, .show = help_text()};
  } catch (const CLI::CallForVersion& version) {
    return ParsedFlags{.command = nullptr, .show = std::string(version.what()) + "\n"};
  } catch (const CLI::ArgumentMismatch& error) {
    return wrong_count(error.what());
  } catch (const CLI::ParseError& error) {
    return invalid_argument(error.what());
  }
  const std::vector<CLI::App*> chosen = app_->get_subcommands();
  if (chosen.empty()) return unknown_command();
  const auto command = std::find_if(commands_.begin(), commands_.end(),
                                    [&](const CommandFlags& c) { return c.name() == chosen[0]->get_name(); });
  if (const std::vector<std::string> extras = chosen[0]->remaining(); !extras.empty())
    return unknown_argument(command->name(), extras[0], command->flags());
  TRY(error_);
  return ParsedFlags{.command = &*command, .show = ""};
}

// Of the command that was named, else of the program; groups one line apart.
std::string FlagParser::help_text() const {
  std::string text = app_->help();
  for (std::size_t at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at)) text.erase(at, 1);
  return text;
}

Status FlagParser::unknown_command() const {
  std::vector<std::string> names;
  names.reserve(commands_.size());
  for (const CommandFlags& command : commands_) names.push_back(command.name());
  const std::string accepted = fmt::format("accepted are {}", fmt::join(names, ", "));
  const std::vector<std::string> extras = app_->remaining();
  if (extras.empty()) return invalid_argument("no command is given; " + accepted);
  return invalid_argument(fmt::format("\"{}\" is no command; {}", extras[0], accepted));
}

}  // namespace tessera::cli
