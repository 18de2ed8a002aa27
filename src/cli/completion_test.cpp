// Catches: a command, flag or listed value that --help shows but the manual page or a shell's completion lacks; an
// unescaped character that is special in troff or in a shell.
#include "tessera/cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/cli/man_page.h"
#include "tessera/cli/parse.h"

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string shown(const std::vector<std::string>& arguments) {
  const Result<CommandLine> line = parse_command_line(shared_built_ins(), arguments);
  EXPECT_TRUE(line.ok()) << line.status().message();
  return line.ok() ? std::get<ShowText>(line->command).text : "";
}

// Returns all occurrences of "--name" in a text.
std::vector<std::string> flags_in(const std::string& text) {
  std::vector<std::string> flags;
  for (std::size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
    const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", at + 2);
    if (end > at + 2) flags.push_back(text.substr(at, end - at));
  }
  return flags;
}

TEST(Completion, HasEveryCommandAndFlagOfTheHelp) {
  std::string man = shown({"man"});
  for (std::size_t at = man.find("\\-"); at != std::string::npos; at = man.find("\\-", at)) man.erase(at, 1);
  const std::string bash = shown({"completion", "bash"});
  const std::string zsh = shown({"completion", "zsh"});
  const std::string fish = shown({"completion", "fish"});
  int flags = 0;
  for (const char* command : {"serve", "generate", "chat", "score", "explain", "verify", "bench", "tune", "pull",
                              "cache", "make-checkpoint", "quantize", "help", "completion", "man"}) {
    EXPECT_THAT(man, HasSubstr(std::string(".B ") + command + "\n"));
    EXPECT_THAT(bash, HasSubstr(std::string("\n    ") + command + ")\n"));
    EXPECT_THAT(zsh, HasSubstr(std::string("\n    ") + command + ")\n"));
    EXPECT_THAT(fish, HasSubstr(std::string("-a ") + command + " -d"));
    for (const std::string& flag : flags_in(shown({command, "--help"}))) {
      ++flags;
      EXPECT_THAT(man, HasSubstr(flag)) << command;
      EXPECT_THAT(bash, HasSubstr(flag)) << command;
      EXPECT_THAT(zsh, HasSubstr(flag)) << command;
      EXPECT_THAT(fish, HasSubstr(" -l " + flag.substr(2))) << command;
    }
  }
  EXPECT_GT(flags, 300);
}

TEST(Completion, OffersTheListedValues) {
  EXPECT_THAT((ShownFlag{.names = {"--a"}, .type = "x|y"}).choices(), ElementsAre("x", "y"));
  EXPECT_THAT((ShownFlag{.names = {"--a"}, .type = "cpu|cuda|cuda:N"}).choices(), ElementsAre("cpu", "cuda"));
  EXPECT_THAT((ShownFlag{.names = {"--a"}, .type = "DIR|ID"}).choices(), IsEmpty());
  EXPECT_THAT((ShownFlag{.names = {"--a"}, .type = "N"}).choices(), IsEmpty());
  EXPECT_THAT(shown({"completion", "bash"}), HasSubstr("--metrics-style) words='sglang vllm' ;;"));
}

TEST(ManPage, NamesTheEnvironment) {
  for (const char* variable :
       {"TESSERA_API_KEY", "TESSERA_CACHE_DIR", "TESSERA_HISTORY", "SGLANG_CACHE_DIR", "HF_TOKEN"})
    EXPECT_THAT(shown({"man"}), HasSubstr(variable));
}

TEST(Completion, EscapesCharactersOfShellsAndTroff) {
  const std::vector<ShownCommand> commands = {
      {.name = "run",
       .help = "it's",
       .flags = {{.names = {"--a"}, .type = "N", .help = ".x \\ [1]: it's", .group = "G"}}}};
  EXPECT_THAT(man_page("1", commands),
              AllOf(HasSubstr("\n\\&.x \\e [1]: it's\n"), HasSubstr("\\fB\\-\\-a\\fR \\fIN\\fR")));
  EXPECT_THAT(completion(Shell::kZsh, commands), HasSubstr("'--a=[.x \\\\ \\[1\\]\\: it'\\''s]:value:'"));
  EXPECT_THAT(completion(Shell::kFish, commands), AllOf(HasSubstr("-d 'it\\'s'"), Not(HasSubstr("-d 'it's'"))));
}

TEST(HelpCommand, EqualsTheHelpOfTheFlag) {
  EXPECT_EQ(shown({"help"}), shown({"--help"}));
  EXPECT_EQ(shown({"help", "serve"}), shown({"serve", "--help"}));
  EXPECT_EQ(shown({"-v"}), shown({"--version"}));
  EXPECT_THAT(parse_command_line(shared_built_ins(), {"help", "serv"}).status().message(),
              HasSubstr("\"serv\" is no command; accepted are serve, generate"));
}

TEST(HelpCommand, IsShownIfACommandLacksItsWord) {
  EXPECT_EQ(help_of_bare_command(shared_built_ins(), {"bench"}), shown({"bench", "--help"}) + "\n");
  EXPECT_EQ(help_of_bare_command(shared_built_ins(), {"serve"}), "");
  EXPECT_EQ(help_of_bare_command(shared_built_ins(), {"bench", "fast"}), "");
}

}  // namespace
}  // namespace tessera::cli
