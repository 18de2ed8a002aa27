#include <fmt/format.h>

#include "tessera/cli/command_parser.h"
#include "tessera/cli/generate/sampling_flags.h"
#include "tessera/options/values.h"

namespace tessera::cli {
namespace {

// Adds the prompt flags of `generate` (one prompt) and `score` (a batch).
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
  const auto take_image = [&prompt](const std::string& flag, const std::string& text) {
    if (text.empty()) return invalid_argument(fmt::format("{}: the file's name is empty", flag));
    prompt.images.push_back(text);
    return ok_status();
  };
  constexpr const char* kImageHelp =
      "PNG, JPEG, WebP, GIF, BMP, TIFF or PPM; repeatable, in the order of the placeholders";
  if (batch) {
    add.values("--prompt", "TEXT", "text; repeatable: one batch", take_text);
    add.values("--input-ids", "LIST", "token ids \"1,2,3\"; repeatable: one batch", take_ids);
    add.values("--image", "FILE", kImageHelp, take_image);
    return;
  }
  add.value("--prompt", "TEXT", "text to continue", take_text);
  add.text("--prompt-file", "FILE", "text to continue, from a file", prompt.file);
  add.value("--input-ids", "LIST", "token ids to continue, \"1,2,3\"; no tokenizer is needed", take_ids);
  add.values("--image", "FILE", kImageHelp, take_image);
}

Status check_prompts(const PromptOptions& prompt, bool batch) {
  const int kinds = !prompt.texts.empty() + !prompt.file.empty() + !prompt.ids.empty();
  if (kinds == 1 && !prompt.images.empty() && prompt.texts.size() + prompt.ids.size() > 1)
    return invalid_argument("--image goes with one prompt");
  if (kinds == 1) return ok_status();
  const std::string_view accepted = batch ? "--prompt or --input-ids" : "--prompt, --prompt-file or --input-ids";
  return invalid_argument(kinds == 0 ? fmt::format("a prompt is missing: give {}", accepted)
                                     : fmt::format("two kinds of prompt are given; accepted is one of {}", accepted));
}

// Refuses several adapters for a command whose prompts can use only one.
Status check_adapter(const EngineOptions& engine, std::string_view otherwise = "") {
  if (engine.adapters.paths.size() < 2) return ok_status();
  return invalid_argument(fmt::format("--lora-paths: {} adapters are given, and a prompt uses one{}",
                                      engine.adapters.paths.size(), otherwise));
}

class GenerateParser final : public CommandParser {
 public:
  GenerateParser(CommandFlags& add, CommonFlags& common) {
    add.group("Prompt and output");
    add_prompt_flags(add, /*batch=*/false, options_.prompt);
    add.flag("--chat", "the prompt is a user's message in the model's chat template", options_.chat);
    add.flag("--json", "one JSON object on standard output instead", options_.json);
    add.flag("--stats", "a table of graphs and times on standard error", options_.stats);
    add.group("Many requests, instead of one prompt");
    add.text("--input-file", "FILE",
             "a JSON request per line: OpenAI's batch form, or its \"body\" alone; chats, completions, embeddings",
             batch_.input_file);
    add.text("--output-file", "FILE", "where their answers go, in their order", batch_.output_file);
    add.text("--served-model-name", "NAME", "what the requests call the model (its path)", batch_.served_model_name);
    add_sampling_flags(add, "Sampling and length (greedy unless one of the first four is given; 128 tokens)", given_);
    add_engine_flags(add, options_.engine, common);
    add.footer(
        "generation_config.json gives the end-of-text tokens; its sampling values are not applied to a prompt, "
        "but to requests of a file. A prompt uses the adapter of --lora-paths.");
  }

  EngineOptions* engine() override { return &options_.engine; }

  Result<Command> finish() override {
    if (!batch_.input_file.empty()) return finish_batch();
    for (const auto& [flag, value] : {std::pair("--output-file", &batch_.output_file),
                                      std::pair("--served-model-name", &batch_.served_model_name)}) {
      if (!value->empty()) return invalid_argument(fmt::format("{} goes with --input-file alone", flag));
    }
    TRY(check_prompts(options_.prompt, /*batch=*/false));
    if (options_.chat && !options_.prompt.ids.empty())
      return invalid_argument("--chat goes with --prompt or --prompt-file, not with --input-ids");
    TRY(check_adapter(options_.engine, "; several are accepted with --input-file, whose requests name them"));
    options_.sampling = sampling_params(given_);
    options_.stop = stop_conditions(given_);
    return Command(options_);
  }

 private:
  Result<Command> finish_batch() {
    const auto& [texts, file, ids, images] = options_.prompt;
    if (!texts.empty() || !file.empty() || !ids.empty() || !images.empty() || options_.chat || options_.stats)
      return invalid_argument(
          "--input-file has its own prompts; it goes without --prompt, --prompt-file, --input-ids, --image, "
          "--chat and --stats");
    if (given_ != GivenSampling{})
      return invalid_argument("--input-file: each request has its own sampling; accepted are no sampling flags");
    if (batch_.output_file.empty()) return invalid_argument("--output-file is missing, which --input-file needs");
    batch_.engine = options_.engine;
    batch_.json = options_.json;
    if (batch_.served_model_name.empty()) batch_.served_model_name = batch_.engine.model_path;
    return Command(batch_);
  }

  GenerateOptions options_;
  BatchOptions batch_;
  GivenSampling given_;
};

class ChatParser final : public CommandParser {
 public:
  ChatParser(CommandFlags& add, CommonFlags& common) {
    add.group("Conversation");
    add.text("--system", "TEXT", "the system's message", options_.system);
    add.flag("--no-history", "do not keep the lines that are typed for the next run", options_.no_history);
    add_sampling_flags(add, "Sampling and length (as generation_config.json has it; up to the context)",
                       options_.sampling);
    add_engine_flags(add, options_.engine, common);
    add.footer(
        "Ctrl-C stops an answer, Ctrl-D ends. In the conversation: /reset, /system, /help, /exit, /quit.\n"
        "On a terminal lines can be edited, and earlier ones come back with the arrow keys; they are kept in "
        "TESSERA_HISTORY, else tessera/chat_history in XDG_STATE_HOME or ~/.local/state.\n"
        "Lines may come from a pipe; then standard output has the answers alone.");
  }

  EngineOptions* engine() override { return &options_.engine; }
  Result<Command> finish() override {
    if (options_.engine.adapters.paths.empty()) return Command(options_);
    return unimplemented("--lora-paths: a chat uses no adapter yet; generate and serve do");
  }

 private:
  ChatOptions options_;
};

class ScoreParser final : public CommandParser {
 public:
  ScoreParser(CommandFlags& add, CommonFlags& common) {
    add.group("Prompts and output");
    add_prompt_flags(add, /*batch=*/true, options_.prompts);
    add.text(
        "--output", "FILE",
        "safetensors file: logits, logprobs (logits_0, … of several); with images also image_embeds_0, … and positions",
        options_.output);
    add.flag("--json", "the summary as one JSON object", options_.json);
    add_engine_flags(add, options_.engine, common);
  }

  EngineOptions* engine() override { return &options_.engine; }

  Result<Command> finish() override {
    TRY(check_prompts(options_.prompts, /*batch=*/true));
    TRY(check_adapter(options_.engine));
    if (options_.output.empty()) return invalid_argument("--output is missing");
    return Command(options_);
  }

 private:
  ScoreOptions options_;
};

}  // namespace

std::unique_ptr<CommandParser> make_generate_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<GenerateParser>(add, common);
}

std::unique_ptr<CommandParser> make_chat_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<ChatParser>(add, common);
}

std::unique_ptr<CommandParser> make_score_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<ScoreParser>(add, common);
}

}  // namespace tessera::cli
