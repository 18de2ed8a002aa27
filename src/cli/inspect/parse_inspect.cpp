#include <fmt/format.h>

#include "tessera/cli/command_parser.h"
#include "tessera/cli/inspect/shown_programs.h"
#include "tessera/options/values.h"

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
    add.text("--suggest-tokens", "FILE",
             "instead: prefill sizes that fit a trace (Azure's .csv, Mooncake's .jsonl) or a saved /metrics",
             options_.suggest_tokens);
    add.text(
        "--graph", "NAME",
        "instead: body, head, sampler, choose, logprobs, decode, prefill and prefill_head (what prompts run of body "
        "and head), draft, draft_head and draft_decode (of a layer that drafts), tower (of a model that reads images), "
        "stitched, the number of a part, pass:NAME (before and after that pass), program:N (what part N is compiled "
        "to), or entries (every part at every size)",
        options_.graph);
    add.text("--export", "DIR", "also write every graph there as text, DOT and SVG", options_.export_folder);
    add.choice("--format", "dot and svg: a picture, of the stitched graph unless --graph says another",
               {"text", "json", "dot", "svg"}, options_.format);
    add.text("--output", "FILE", "instead of standard output", options_.output);
    add_engine_flags(add, options_.engine, common);
    add.footer("Exit code 1 where piecewise graphs would be off.");
  }

  EngineOptions* engine() override { return &options_.engine; }

  Result<Command> finish() override {
    const bool picture = options_.format == ExplainFormat::kDot || options_.format == ExplainFormat::kSvg;
    if (picture && options_.num_tokens)
      return invalid_argument("--num-tokens goes with --format text or json, not with a picture");
    if (picture && !options_.suggest_tokens.empty())
      return invalid_argument("--suggest-tokens goes with --format text or json, not with a picture");
    if (options_.format != ExplainFormat::kText && names_program(options_.graph))
      return invalid_argument(fmt::format("--graph {} goes with --format text", options_.graph));
    if (options_.num_tokens && !options_.graph.empty())
      return invalid_argument("--num-tokens does not go with --graph");
    if (!options_.suggest_tokens.empty() && !(options_.graph.empty() && options_.export_folder.empty()))
      return invalid_argument("--suggest-tokens goes neither with --graph nor with --export");
    if (options_.num_tokens && !options_.suggest_tokens.empty())
      return invalid_argument("--num-tokens does not go with --suggest-tokens");
    return Command(options_);
  }

 private:
  ExplainOptions options_;
};

class VerifyParser final : public CommandParser {
 public:
  VerifyParser(CommandFlags& add, CommonFlags& common) {
    add.group("What to compare");
    add.flag("--modes", "every way to run: graph and capture modes, passes off, deterministic, after a restart",
             options_.modes);
    add.integer("--soak", "so many random batches instead of every size", {1, INT32_MAX}, options_.soak);
    add.value("--seed", "N", "of the random batches (1)", [this](const std::string& flag, const std::string& text) {
      options_.seed = static_cast<std::uint64_t>(TRY(parse_integer(flag, text, {0})));
      seeded_ = true;
      return ok_status();
    });
    add.flag("--json", "the result as one JSON object", options_.json);
    add_engine_flags(add, options_.engine, common);
    add.footer("Exit code 1 on any difference.");
  }

  EngineOptions* engine() override { return &options_.engine; }
  Result<Command> finish() override {
    if (options_.modes && options_.soak > 0) return invalid_argument("--modes does not go with --soak");
    if (seeded_ && options_.soak == 0) return invalid_argument("--seed goes with --soak");
    return Command(options_);
  }

 private:
  VerifyOptions options_;
  bool seeded_ = false;
};

class TuneParser final : public CommandParser {
 public:
  TuneParser(CommandFlags& add, CommonFlags& common) {
    add.group("What to write");
    add.flag("--json", "the result as one JSON object", options_.json);
    add_engine_flags(add, options_.engine, common);
    add.footer("Give the flags that the server will have: what is measured holds for its model, device and sizes.");
  }

  EngineOptions* engine() override { return &options_.engine; }
  Result<Command> finish() override {
    if (options_.engine.deterministic)
      return invalid_argument(
          "--enable-deterministic-inference does not go with tune, because a deterministic engine measures nothing");
    if (!options_.engine.graphs.measure_costs)
      return invalid_argument("--disable-cost-measurement does not go with tune, which only measures");
    return Command(options_);
  }

 private:
  TuneOptions options_;
};

}  // namespace

std::unique_ptr<CommandParser> make_explain_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<ExplainParser>(add, common);
}

std::unique_ptr<CommandParser> make_verify_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<VerifyParser>(add, common);
}

std::unique_ptr<CommandParser> make_tune_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<TuneParser>(add, common);
}

}  // namespace tessera::cli
