#include "tessera/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace tessera::cli {
namespace {

// The kinds of values that a flag or a positional argument takes.
enum class Value : std::uint8_t { kNone, kChoices, kFile, kFolder, kOther };

Value value_of(const ShownFlag& flag) {
  if (!flag.choices().empty()) return Value::kChoices;
  if (flag.type == "FILE" || flag.type == "PATH") return Value::kFile;
  if (flag.type == "DIR" || flag.type == "DIR|ID") return Value::kFolder;
  return flag.type.empty() && flag.word.empty() ? Value::kNone : Value::kOther;
}

std::vector<std::string> names_of(std::span<const ShownCommand> commands) {
  std::vector<std::string> names;
  for (const ShownCommand& command : commands) names.push_back(command.name);
  return names;
}

// Returns the words that may follow the command's name. The command `help` is followed by a command's name.
std::vector<std::string> words_of(const ShownCommand& command, std::span<const ShownCommand> commands) {
  if (command.name == "help") return names_of(commands);
  for (const ShownFlag& flag : command.flags) {
    if (!flag.word.empty()) return flag.choices();
  }
  return {};
}

// Makes a text usable between single quotes: replaces each single quote by `quote`.
std::string quoted(std::string_view text, std::string_view quote) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += quote;
    } else {
      out += c;
    }
  }
  return out;
}

std::string bash_values(const ShownCommand& command) {
  std::string text;
  for (const ShownFlag& flag : command.flags) {
    if (flag.names.empty()) continue;
    std::string how;
    switch (value_of(flag)) {
      case Value::kNone: continue;
      case Value::kChoices: how = fmt::format("words='{}'", fmt::join(flag.choices(), " ")); break;
      case Value::kFile: how = "kind=file"; break;
      case Value::kFolder: how = "kind=directory"; break;
      case Value::kOther: how = "kind=none"; break;
    }
    text += fmt::format("        {}) {} ;;\n", fmt::join(flag.names, "|"), how);
  }
  return text;
}

std::string bash(std::span<const ShownCommand> commands) {
  std::string cases;
  for (const ShownCommand& command : commands) {
    std::vector<std::string> flags;
    for (const ShownFlag& flag : command.flags) flags.insert(flags.end(), flag.names.begin(), flag.names.end());
    cases += fmt::format(
        "    {})\n      flags='{}'\n      first='{}'\n      case \"$before\" in\n{}        *) ;;\n      esac ;;\n",
        command.name, fmt::join(flags, " "), fmt::join(words_of(command, commands), " "), bash_values(command));
  }
  return fmt::format(R"(# bash completion of tessera(1)
_tessera() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" flags='' first='' words='' kind=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- "$word")
    return
  fi
  # Bash takes "=" for a word of its own.
  if [[ $word == = ]]; then
    word=''
  elif [[ $before == = ]]; then
    before="${{COMP_WORDS[COMP_CWORD-2]}}"
  fi
  case "${{COMP_WORDS[1]}}" in
{}    *) return ;;
  esac
  if [[ $kind == file || $kind == directory ]]; then
    mapfile -t COMPREPLY < <(compgen -A "$kind" -- "$word")
    compopt -o filenames 2>/dev/null
  elif [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  elif [[ -z $kind ]]; then
    ((COMP_CWORD == 2)) && flags="$first $flags"
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  fi
}}
complete -F _tessera tessera
)",
                     fmt::join(names_of(commands), " "), cases);
}

// Escapes a text for zsh's functions _arguments (inside brackets) and _describe (after a colon).
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return quoted(out, "'\\''");
}

std::string zsh_value(const ShownFlag& flag) {
  switch (value_of(flag)) {
    case Value::kNone: return "";
    case Value::kChoices: return fmt::format(":value:({})", fmt::join(flag.choices(), " "));
    case Value::kFile: return ":file:_files";
    case Value::kFolder: return ":folder:_files -/";
    case Value::kOther: break;
  }
  return ":value:";
}

std::string zsh(std::span<const ShownCommand> commands) {
  std::string names;
  std::string cases;
  for (const ShownCommand& command : commands) {
    names += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.help));
    cases += fmt::format("    {})\n      _arguments", command.name);
    for (const ShownFlag& flag : command.flags) {
      const std::string value = zsh_value(flag);
      for (const std::string& name : flag.names)
        cases += fmt::format(" \\\n        '{}{}{}[{}]{}'", flag.repeatable ? "*" : "", name,
                             value.empty() || !name.starts_with("--") ? "" : "=", zsh_text(flag.help), value);
    }
    const std::vector<std::string> words = words_of(command, commands);
    if (!words.empty()) cases += fmt::format(" \\\n        '1:word:({})'", fmt::join(words, " "));
    cases += " ;;\n";
  }
  return fmt::format(R"(#compdef tessera
# zsh completion of tessera(1)
_tessera() {{
  local -a commands=(
{}  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{}  esac
}}
if [[ $funcstack[1] == _tessera ]]; then
  _tessera "$@"
else
  compdef _tessera tessera
fi
)",
                     names, cases);
}

std::string fish_value(const ShownFlag& flag) {
  switch (value_of(flag)) {
    case Value::kNone: return "";
    case Value::kChoices: return fmt::format(" -x -a '{}'", fmt::join(flag.choices(), " "));
    case Value::kFile: return " -r -F";
    case Value::kFolder: return " -x -a '(__fish_complete_directories)'";
    case Value::kOther: break;
  }
  return " -x";
}

std::string fish(std::span<const ShownCommand> commands) {
  std::string text = "# fish completion of tessera(1)\ncomplete -c tessera -f\n";
  for (const ShownCommand& command : commands)
    text += fmt::format("complete -c tessera -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                        quoted(command.help, "\\'"));
  for (const ShownCommand& command : commands) {
    const std::string here = fmt::format("complete -c tessera -n '__fish_seen_subcommand_from {}'", command.name);
    for (const ShownFlag& flag : command.flags) {
      if (flag.names.empty()) continue;
      text += here;
      for (const std::string& name : flag.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += fmt::format("{} -d '{}'\n", fish_value(flag), quoted(flag.help, "\\'"));
    }
    const std::vector<std::string> words = words_of(command, commands);
    if (!words.empty()) text += fmt::format("{} -a '{}'\n", here, fmt::join(words, " "));
  }
  return text;
}

}  // namespace

std::string completion(Shell shell, std::span<const ShownCommand> commands) {
  switch (shell) {
    case Shell::kBash: return bash(commands);
    case Shell::kZsh: return zsh(commands);
    case Shell::kFish: break;
  }
  return fish(commands);
}

}  // namespace tessera::cli
