#include <fmt/format.h>

#include "tessera/cli/command_parser.h"
#include "tessera/model/quantise/quantised_output.h"

namespace tessera::cli {
namespace {

class QuantizeParser final : public CommandParser {
 public:
  QuantizeParser(CommandFlags& add, CommonFlags& common) : common_(common) {
    options_.registry = common.registry;
    add.group("Checkpoint");
    add.word("in", "", "a model: folder, GGUF file or id of the hub", [this](const std::string&, const auto& text) {
      options_.input = text;
      return ok_status();
    });
    add.word("out", "", "the file NAME.gguf to write, or the folder for fp8 and the types after it",
             [this](const std::string&, const auto& text) {
               options_.output = text;
               return ok_status();
             });
    add.value(
        "--type", "TYPE", "of the matrices: " + output_type_names(),
        [this](const std::string& flag, const std::string& text) {
          if (!output_form(text))
            return invalid_argument(fmt::format("{}: \"{}\" is not accepted; {} are", flag, text, output_type_names()));
          options_.type = text;
          return ok_status();
        });
    add.text("--imatrix", "FILE",
             "importance matrix of tessera calibrate or llama-imatrix (GGUF): which numbers matter; for types of GGUF "
             "files, int4 and nvfp4",
             options_.importance);
    add.flag("--overwrite", "replace a file that is there", options_.overwrite);
    add.flag("--json", "one JSON object", options_.json);
    add.text("--gguf-file", "FILE|TYPE", "one of several GGUF files of the folder, or of the model of the hub",
             common.model.gguf_file);
    add.text("--revision", "REV", "branch, tag or commit of a model of the hub (main)", common.model.revision);
    add.flag("--download", "fetch a model of the hub that the cache lacks", common.model.download);
    add_other_flags(add, common);
    add.footer(
        "Writes a model with smaller weights. In GGUF files vectors, norms and routers are float32, and of types such "
        "as Q4_K_M some matrices get more bits, as llama.cpp chooses them. fp8 and the types after it are written as "
        "folders of safetensors, in which linears and experts are quantised.");
  }

  EngineOptions* engine() override { return nullptr; }

  Result<Command> finish() override {
    if (options_.input.empty() || options_.output.empty())
      return invalid_argument("quantize needs a model and an output, a file NAME.gguf or a folder");
    if (options_.type.empty())
      return invalid_argument(fmt::format("--type is missing; accepted: {}", output_type_names()));
    options_.source = common_.model;
    return Command(options_);
  }

 private:
  CommonFlags& common_;
  QuantizeOptions options_;
};

}  // namespace

std::unique_ptr<CommandParser> make_quantize_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<QuantizeParser>(add, common);
}

}  // namespace tessera::cli
