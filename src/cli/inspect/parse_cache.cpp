#include <array>

#include "tessera/cli/command_parser.h"
#include "tessera/options/values.h"

namespace tessera::cli {
namespace {

class CacheParser final : public CommandParser {
 public:
  CacheParser(CommandFlags& add, CommonFlags& common) {
    add.group("Cache");
    add.word("what", "info|clear", "show it or clear it", [this](const std::string&, const std::string& text) {
      what_ = text;
      return ok_status();
    });
    add.flag("--json", "one JSON object", options_.json);
    add_other_flags(add, common);
    add.footer(
        "The folder is TESSERA_CACHE_DIR, else SGLANG_CACHE_DIR, else tessera in XDG_CACHE_HOME or ~/.cache. Models of "
        "the "
        "hub are elsewhere, and stay.");
  }

  EngineOptions* engine() override { return nullptr; }

  Result<Command> finish() override {
    static constexpr std::array<std::string_view, 2> kActions = {"info", "clear"};
    if (what_.empty()) return invalid_argument("cache needs an action: info or clear");
    options_.action = static_cast<CacheAction>(TRY(parse_choice("cache", what_, kActions)));
    return Command(options_);
  }

 private:
  CacheOptions options_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CommandParser> make_cache_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<CacheParser>(add, common);
}

}  // namespace tessera::cli
