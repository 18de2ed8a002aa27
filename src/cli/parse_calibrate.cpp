#include <fmt/format.h>

#include "tessera/cli/command_parser.h"

namespace tessera::cli {
namespace {

class CalibrateParser final : public CommandParser {
 public:
  CalibrateParser(CommandFlags& add, CommonFlags& common) : common_(common) {
    add.group("Text and output");
    // The user names the model by a positional argument or by --model-path, as in `serve`.
    add.word("model", "", "a model: folder, GGUF file or id of the hub", [this](const std::string&, const auto& text) {
      model_ = text;
      options_.engine.model_path = text;
      return ok_status();
    });
    add.word("text", "", "a file with text like that which the model will read and write",
             [this](const std::string&, const auto& text) {
               options_.text = text;
               return ok_status();
             });
    add.text("--output,-o", "FILE", "the importance matrix to write, a GGUF file", options_.output);
    add.integer("--chunk-tokens", "tokens of the text that are computed together; each chunk begins a new context",
                {.min = 2, .max = 1 << 20}, options_.chunk_tokens);
    add.integer("--chunks", "the most chunks to compute; 0: all of the text", {.min = 0}, options_.most_chunks);
    add.flag("--overwrite", "replace a file that is there", options_.overwrite);
    add.flag("--json", "one JSON object", options_.json);
    add_engine_flags(add, options_.engine, common);
    add.footer(
        "Adds up the squares of the inputs of every linear and every expert. `tessera quantize --imatrix` and "
        "llama-quantize --imatrix keep the numbers more precisely that are multiplied by large inputs. Runs without "
        "graphs, so flags about graphs have no effect.");
  }

  EngineOptions* engine() override { return &options_.engine; }

  Result<Command> finish() override {
    const EngineOptions& engine = options_.engine;
    if (options_.text.empty() || (!model_.empty() && engine.model_path != model_))
      return invalid_argument("calibrate needs one model and a file with text: tessera calibrate MODEL TEXT -o FILE");
    if (options_.output.empty()) return invalid_argument("--output is missing");
    for (const auto& [flag, size] : {std::pair{"--tp-size", engine.tp_size}, std::pair{"--pp-size", engine.pp_size}})
      if (size != 1)
        return unimplemented(
            fmt::format("{}: {} is not accepted by calibrate, which observes one device; accepted: 1", flag, size));
    if (engine.drafts.any())
      return invalid_argument("--speculative-algorithm does not go with calibrate, which generates nothing");
    if (engine.adapters.enabled || !engine.adapters.paths.empty())
      return invalid_argument("--enable-lora does not go with calibrate, which observes the model's own matrices");
    if (!common_.model.mmproj.empty())
      return invalid_argument("--mmproj does not go with calibrate, which computes texts alone");
    common_.model.no_mmproj = true;
    return Command(options_);
  }

 private:
  CommonFlags& common_;  // shared by the parsers of all commands
  CalibrateOptions options_;
  std::string model_;  // the word; "": --model-path names the model
};

}  // namespace

std::unique_ptr<CommandParser> make_calibrate_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<CalibrateParser>(add, common);
}

}  // namespace tessera::cli
