#include "tessera/cli/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera::cli {
namespace {

constexpr std::string_view kEnd = R"(.SH EXIT STATUS
0: done. 2: a wrong command line. 1: all else.
.SH ENVIRONMENT
.TP
.B TESSERA_CACHE_DIR
what earlier starts measured is kept there; else
.BR SGLANG_CACHE_DIR ,
.I $XDG_CACHE_HOME/tessera
or
.IR ~/.cache/tessera .
.TP
.B TESSERA_HISTORY
the file of
.BR "tessera chat" 's
lines; empty: none are kept. Else
.I $XDG_STATE_HOME/tessera/chat_history
or
.IR ~/.local/state/tessera/chat_history .
.TP
.B TESSERA_API_KEY
the key of
.B tessera serve
where neither
.B \-\-api\-key
nor
.B \-\-api\-key\-file
is given.
.TP
.BR HF_HOME ", " HF_HUB_CACHE ", " HF_ENDPOINT ", " HF_TOKEN
where models of the Hugging Face hub are, and how they are fetched.
)";

// Escapes a text so that troff writes it unchanged.
std::string escaped(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

// Returns the heading of a flag's paragraph: the flag's names in bold, and the name of its value in italics.
std::string tag(const ShownFlag& flag) {
  std::string names;
  for (const std::string& name : flag.names)
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", escaped(name));
  if (names.empty()) names = fmt::format("\\fI{}\\fR", escaped(flag.word));
  return flag.type.empty() ? names : fmt::format("{} \\fI{}\\fR", names, escaped(flag.type));
}

std::string section(const ShownCommand& command) {
  std::string text = fmt::format(".SH TESSERA {}\n{}.\n", escaped(command.name), escaped(command.help));
  std::string group;
  for (const ShownFlag& flag : command.flags) {
    if (flag.group != group) text += fmt::format(".SS {}\n", escaped(flag.group));
    group = flag.group;
    text += fmt::format(".TP\n{}\n{}\n", tag(flag), escaped(flag.help));
  }
  if (!command.footer.empty()) text += fmt::format(".PP\n{}\n", escaped(command.footer));
  return text;
}

}  // namespace

std::string man_page(std::string_view version, std::span<const ShownCommand> commands) {
  std::string text = fmt::format(
      ".TH TESSERA 1 \"\" \"tessera {}\" \"User Commands\"\n"
      ".SH NAME\ntessera \\- run language models through piecewise graphs\n"
      ".SH SYNOPSIS\n.B tessera\n.I command\n[\\fIflags\\fR]\n"
      ".SH DESCRIPTION\nTessera runs and serves language models of Hugging Face checkpoints. "
      "The flags of all commands may also stand in the file of \\fB\\-\\-config\\fR.\n.SH COMMANDS\n",
      escaped(version));
  for (const ShownCommand& command : commands)
    text += fmt::format(".TP\n.B {}\n{}\n", escaped(command.name), escaped(command.help));
  for (const ShownCommand& command : commands) text += section(command);
  return text + std::string(kEnd);
}

}  // namespace tessera::cli
