#include "tessera/cli/parse.h"

#include <fmt/format.h>

#include <array>

#include "tessera/cli/engine_flags.h"
#include "tessera/cli/flags.h"
#include "tessera/cli/values.h"

namespace tessera::cli {
namespace {

// Of `generate` (one prompt) and `score` (a batch).
void add_prompt_flags(CommandFlags& add, bool batch, PromptOptions& prompt) {
  const auto take_text = [&prompt](const std::string& flag, const std::string& text) {
    if (text.empty()) return invalid_argument(fmt::format("{}: the text is empty", flag));
    prompt.texts.push_back(text);
    return ok_status();
  };
  const auto take_ids = [&prompt](const std::string& flag, const std::string& text) {
    prompt.ids.push_back(TRY(parse_token_ids(flag, text)));
    return ok_status();
  };
  if (batch) {
    add.values("--prompt", "TEXT", "text; repeatable: one batch", take_text);
    add.values("--input-ids", "LIST", "token ids \"1,2,3\"; repeatable: one batch", take_ids);
    return;
  }
  add.value("--prompt", "TEXT", "text to continue", take_text);
  add.text("--prompt-file", "FILE", "text to continue, from a file", prompt.file);
  add.value("--input-ids", "LIST", "token ids to continue, \"1,2,3\"; no tokenizer is needed", take_ids);
}

Status check_prompts(const PromptOptions& prompt, bool batch) {
  const int kinds = !prompt.texts.empty() + !prompt.file.empty() + !prompt.ids.empty();
  if (kinds == 1) return ok_status();
  const std::string_view accepted = batch ? "--prompt or --input-ids" : "--prompt, --prompt-file or --input-ids";
  return invalid_argument(kinds == 0 ? fmt::format("a prompt is missing: give {}", accepted)
                                     : fmt::format("two kinds of prompt are given; accepted is one of {}", accepted));
}

// A command's flags, and after parsing its options.
class CommandParser {
 public:
  virtual ~CommandParser() = default;
  virtual const EngineOptions& engine() const = 0;
  // Checks what no single flag can tell.
  virtual Result<Command> finish() = 0;
};

class GenerateParser final : public CommandParser {
 public:
  GenerateParser(CommandFlags& add, CommonFlags& common) {
    add.group("Prompt and output");
    add_prompt_flags(add, /*batch=*/false, options_.prompt);
    add.flag("--chat", "the prompt is a user's message in the model's chat template", options_.chat);
    add.integer("--max-new-tokens", "at most so many (128)", {}, options_.max_new_tokens);
    add.flag("--ignore-eos", "go on after an end-of-text token", options_.ignore_eos);
    add.flag("--json", "one JSON object on standard output instead", options_.json);
    add.flag("--stats", "a table of graphs and times on standard error", options_.stats);
    add_sampling_flags(add);
    add_engine_flags(add, options_.engine, common);
    add.footer("generation_config.json gives the end-of-text tokens; its sampling values are not applied.");
  }

  const EngineOptions& engine() const override { return options_.engine; }

  Result<Command> finish() override {
    TRY(check_prompts(options_.prompt, /*batch=*/false));
    if (options_.chat && !options_.prompt.ids.empty())
      return invalid_argument("--chat goes with --prompt or --prompt-file, not with --input-ids");
    if (draws_ && !temperature_given_) options_.sampling.temperature = 1;
    return Command(options_);
  }

 private:
  void add_sampling_flags(CommandFlags& add) {
    SamplingParams& sampling = options_.sampling;
    add.group("Sampling (greedy unless one of the first three is given)");
    add.value("--temperature", "X", "0 is greedy; 1 with --top-k or --top-p alone",
              [&](const std::string& flag, const std::string& text) {
                temperature_given_ = true;
                sampling.temperature = TRY(parse_number(flag, text));
                if (sampling.temperature >= 0) return ok_status();
                return invalid_argument(fmt::format("{}: {} is not accepted; 0 (greedy) or more is", flag, text));
              });
    add.value("--top-k", "N", "keep the N most probable; 0: all",
              [&](const std::string& flag, const std::string& text) {
                draws_ = true;
                sampling.top_k = TRY(parse_integer(flag, text, {0, INT32_MAX}));
                return ok_status();
              });
    add.value("--top-p", "X", "keep the smallest set of this probability; 1: all",
              [&](const std::string& flag, const std::string& text) {
                draws_ = true;
                sampling.top_p = TRY(parse_number(flag, text));
                if (sampling.top_p > 0 && sampling.top_p <= 1) return ok_status();
                return invalid_argument(fmt::format("{}: {} is not accepted; more than 0, at most 1 is", flag, text));
              });
    add.value("--seed", "N", "same seed, same tokens", [&](const std::string& flag, const std::string& text) {
      sampling.seed = TRY(parse_integer(flag, text, {0}));
      return ok_status();
    });
  }

  GenerateOptions options_;
  bool draws_ = false;  // a flag that only sampling heeds was given
  bool temperature_given_ = false;
};

class ScoreParser final : public CommandParser {
 public:
  ScoreParser(CommandFlags& add, CommonFlags& common) {
    add.group("Prompts and output");
    add_prompt_flags(add, /*batch=*/true, options_.prompts);
    add.text("--output", "FILE", "safetensors file: logits, logprobs (logits_0, … of several)", options_.output);
    add.flag("--json", "the summary as one JSON object", options_.json);
    add_engine_flags(add, options_.engine, common);
  }

  const EngineOptions& engine() const override { return options_.engine; }

  Result<Command> finish() override {
    TRY(check_prompts(options_.prompts, /*batch=*/true));
    if (options_.output.empty()) return invalid_argument("--output is missing");
    return Command(options_);
  }

 private:
  ScoreOptions options_;
};

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

  const EngineOptions& engine() const override { return options_.engine; }

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

  const EngineOptions& engine() const override { return options_.engine; }
  Result<Command> finish() override { return Command(options_); }

 private:
  VerifyOptions options_;
};

class BenchParser final : public CommandParser {
 public:
  BenchParser(CommandFlags& add, CommonFlags& common) {
    add.group("Measurement");
    add.word("what", "prefill, decode or startup", [this](const std::string&, const std::string& text) {
      what_ = text;
      return ok_status();
    });
    add.sizes("--num-tokens", "of bench prefill", options_.num_tokens);
    add.sizes("--batch-size", "of bench decode", options_.batch_sizes);
    add.value("--context", "N", "of bench decode: cached tokens of each request (128)",
              [this](const std::string& flag, const std::string& text) {
                context_given_ = true;
                options_.context = TRY(parse_integer(flag, text, {2, INT32_MAX}));
                return ok_status();
              });
    add.integer("--repeat", "runs of each kind, of which the median counts (10)", {1, 1'000'000}, options_.repeat);
    add.flag("--json", "the result as one JSON object", options_.json);
    add_engine_flags(add, options_.engine, common);
  }

  const EngineOptions& engine() const override { return options_.engine; }

  Result<Command> finish() override {
    static constexpr std::array<std::string_view, 3> kKinds = {"prefill", "decode", "startup"};
    if (what_.empty()) return invalid_argument("bench of what is missing: accepted are prefill, decode, startup");
    options_.kind = static_cast<BenchKind>(TRY(parse_choice("bench", what_, kKinds)));
    const auto misplaced = [this](std::string_view flag) {
      return invalid_argument(fmt::format("{} does not go with bench {}", flag, what_));
    };
    if (!options_.num_tokens.empty() && options_.kind != BenchKind::kPrefill) return misplaced("--num-tokens");
    if (!options_.batch_sizes.empty() && options_.kind != BenchKind::kDecode) return misplaced("--batch-size");
    if (context_given_ && options_.kind != BenchKind::kDecode) return misplaced("--context");
    return Command(options_);
  }

 private:
  BenchOptions options_;
  std::string what_;
  bool context_given_ = false;
};

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments) {
  FlagParser parser("Tessera: runs language models through piecewise graphs.", TESSERA_VERSION);
  CommonFlags common;
  GenerateParser generate(parser.add_command("generate", "Continue a text, streaming it to standard output"), common);
  ScoreParser score(parser.add_command("score", "Write the logits and log-probabilities of given texts"), common);
  ExplainParser explain(
      parser.add_command("explain", "Show pieces, split ops, sizes, memory and rules; needs config.json only"), common);
  VerifyParser verify(parser.add_command("verify", "Compare every graph, bit for bit, with a run on isolated memory"),
                      common);
  BenchParser bench(parser.add_command("bench", "Measure eager against graphs: prefill, decode or startup"), common);

  const ParsedFlags parsed = TRY(parser.parse(arguments));
  if (parsed.command == nullptr) return CommandLine{.command = ShowText{parsed.show}, .log_levels = {}, .warnings = {}};
  const std::string name = parsed.command->name();
  CommandParser& chosen = name == "generate"  ? static_cast<CommandParser&>(generate)
                          : name == "score"   ? static_cast<CommandParser&>(score)
                          : name == "explain" ? static_cast<CommandParser&>(explain)
                          : name == "verify"  ? static_cast<CommandParser&>(verify)
                                              : bench;
  CommandLine line{.command = TRY(chosen.finish()),
                   .log_levels = common.log_levels,
                   .warnings = warnings_about(chosen.engine(), common)};
  if (chosen.engine().model_path.empty()) return invalid_argument("--model-path is missing");
  return line;
}

}  // namespace tessera::cli
