#include "tessera/cli/command_parser.h"
#include "tessera/cli/values.h"

namespace tessera::cli {
namespace {

class ExplainParser final : public CommandParser {
 public:
  ExplainParser(CommandFlags& add, CommonFlags& common) {
    add.group("What to show");
    add.value("--num-tokens", "N", "also what dispatch does with N tokens, and with N decoding requests",
              [this](const std::string& flag, const std::string& text) {
                options_.num_tokens = TRY(parse_integer(flag, text, {1, INT32_MAX}));
                return ok_status();
              });
    add.choice("--format", "dot and svg: a picture", {"text", "json", "dot", "svg"}, options_.format);
    add.text("--output", "FILE", "instead of standard output", options_.output);
    add_engine_flags(add, options_.engine, common);
    add.footer("Exit code 1 where piecewise graphs would be off.");
  }

  const EngineOptions* engine() const override { return &options_.engine; }

  Result<Command> finish() override {
    const bool picture = options_.format == ExplainFormat::kDot || options_.format == ExplainFormat::kSvg;
    if (picture && options_.num_tokens)
      return invalid_argument("--num-tokens goes with --format text or json, not with a picture");
    return Command(options_);
  }

 private:
  ExplainOptions options_;
};

class VerifyParser final : public CommandParser {
 public:
  VerifyParser(CommandFlags& add, CommonFlags& common) {
    add.group("Output");
    add.flag("--json", "the result as one JSON object", options_.json);
    add_engine_flags(add, options_.engine, common);
    add.footer("Exit code 1 on any difference.");
  }

  const EngineOptions* engine() const override { return &options_.engine; }
  Result<Command> finish() override { return Command(options_); }

 private:
  VerifyOptions options_;
};

}  // namespace

std::unique_ptr<CommandParser> make_explain_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<ExplainParser>(add, common);
}

std::unique_ptr<CommandParser> make_verify_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<VerifyParser>(add, common);
}

}  // namespace tessera::cli
