// Parses the commands that print texts about the program itself.
#include <array>

#include "tessera/cli/command_parser.h"
#include "tessera/cli/completion.h"
#include "tessera/cli/man_page.h"
#include "tessera/options/values.h"

namespace tessera::cli {
namespace {

class HelpParser final : public CommandParser {
 public:
  HelpParser(CommandFlags& add, CommonFlags& common) : common_(common) {
    add.group("Help");
    add.word("command", "", "whose flags to list; without it the commands are", [this](const auto&, const auto& text) {
      name_ = text;
      return ok_status();
    });
    add_other_flags(add, common);
  }

  EngineOptions* engine() override { return nullptr; }
  Result<Command> finish() override { return Command(ShowText{TRY(common_.program->help_of(name_))}); }

 private:
  const CommonFlags& common_;
  std::string name_;
};

class CompletionParser final : public CommandParser {
 public:
  CompletionParser(CommandFlags& add, CommonFlags& common) : common_(common) {
    add.group("Completion");
    add.word("shell", "bash|zsh|fish", "whose completion to print", [this](const auto& flag, const auto& text) {
      static constexpr std::array<std::string_view, 3> kShells = {"bash", "zsh", "fish"};
      shell_ = static_cast<Shell>(TRY(parse_choice(flag, text, kShells)));
      given_ = true;
      return ok_status();
    });
    add_other_flags(add, common);
    add.footer("In bash: source <(tessera completion bash). `make install` puts all three where shells look.");
  }

  EngineOptions* engine() override { return nullptr; }
  Result<Command> finish() override {
    if (!given_) return invalid_argument("completion needs a shell: bash, zsh or fish");
    return Command(ShowText{completion(shell_, common_.program->shown())});
  }

 private:
  const CommonFlags& common_;
  Shell shell_ = Shell::kBash;
  bool given_ = false;
};

class ManParser final : public CommandParser {
 public:
  ManParser(CommandFlags& add, CommonFlags& common) : common_(common) {
    add_other_flags(add, common);
    add.footer("tessera man | man -l - shows it; `make install` puts it where man looks.");
  }

  EngineOptions* engine() override { return nullptr; }
  Result<Command> finish() override { return Command(ShowText{man_page(TESSERA_VERSION, common_.program->shown())}); }

 private:
  const CommonFlags& common_;
};

}  // namespace

std::unique_ptr<CommandParser> make_help_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<HelpParser>(add, common);
}

std::unique_ptr<CommandParser> make_completion_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<CompletionParser>(add, common);
}

std::unique_ptr<CommandParser> make_man_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<ManParser>(add, common);
}

}  // namespace tessera::cli
