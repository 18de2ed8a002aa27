#include <array>

#include "tessera/cli/command_parser.h"
#include "tessera/options/values.h"

namespace tessera::cli {
namespace {

class MakeCheckpointParser final : public CommandParser {
 public:
  MakeCheckpointParser(CommandFlags& add, CommonFlags& common) {
    options_.registry = common.registry;
    add.group("Checkpoint");
    add.word("config", "", "a config.json, or a folder that has one", [this](const std::string&, const auto& text) {
      options_.config = text;
      return ok_status();
    });
    add.word("dir", "", "the folder to write", [this](const std::string&, const auto& text) {
      options_.folder = text;
      return ok_status();
    });
    add.value("--seed", "N", "of the values (0, which are those of --load-format dummy)",
              [this](const std::string& flag, const std::string& text) {
                options_.checkpoint.seed = static_cast<std::uint64_t>(TRY(parse_integer(flag, text, {.min = 0})));
                return ok_status();
              });
    add.value(
        "--dtype", "auto|float32|bfloat16|float16", "of the tensors, and in the new config.json; auto: as the config's",
        [this](const std::string& flag, const std::string& text) {
          static constexpr std::array<std::string_view, 4> kNames = {"auto", "float32", "bfloat16", "float16"};
          const std::size_t choice = TRY(parse_choice(flag, text, kNames));
          if (choice > 0) options_.dtype = weight_dtype_from_config(kNames[choice]);
          return ok_status();
        },
        "auto");
    add.value("--max-shard-size", "BYTES", "of the data of one file (5GB)",
              [this](const std::string& flag, const std::string& text) {
                options_.checkpoint.max_shard_bytes = TRY(parse_bytes(flag, text));
                return ok_status();
              });
    add.text("--tokenizer-path", "PATH", "folder or file of the tokenizer to copy (the one beside the config)",
             options_.tokenizer_path);
    add.flag("--overwrite", "replace the checkpoint of a folder that is not empty", options_.overwrite);
    add_other_flags(add, common);
    add.footer(
        "Writes random weights as a checkpoint in Hugging Face's layout. A start from it computes what --load-format "
        "dummy --random-seed N computes, where both run in the type of the tensors.");
  }

  EngineOptions* engine() override { return nullptr; }

  Result<Command> finish() override {
    if (options_.config.empty() || options_.folder.empty())
      return invalid_argument("make-checkpoint needs a config.json and a new folder");
    return Command(options_);
  }

 private:
  MakeCheckpointOptions options_;
};

}  // namespace

std::unique_ptr<CommandParser> make_make_checkpoint_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<MakeCheckpointParser>(add, common);
}

}  // namespace tessera::cli
