#include <fmt/format.h>

#include <optional>
#include <string>

#include "tessera/cli/command_parser.h"
#include "tessera/model/hub/hub_gguf.h"

namespace tessera::cli {
namespace {

class PullParser final : public CommandParser {
 public:
  PullParser(CommandFlags& add, CommonFlags& common) {
    add.group("Model");
    add.word("id", "", "org/name[:TYPE]", [this](const std::string&, const std::string& text) {
      const std::optional<HubModel> model = parse_hub_name(text);
      if (!model)
        return invalid_argument(fmt::format(
            "pull: \"{}\" is no id of the hub; accepted is org/name, or org/name:TYPE for a GGUF file", text));
      options_.model.id = model->id;
      options_.model.gguf = model->gguf;
      return ok_status();
    });
    add.text("--gguf-file", "FILE|TYPE", "a GGUF file of the model, in place of TYPE behind the id", gguf_file_);
    add.text("--revision", "REV", "branch, tag or commit (main)", options_.model.revision);
    add.text("--mmproj", "FILE", "which of several projectors is fetched with a GGUF file", options_.model.projector);
    add.flag("--no-mmproj", "fetch no projector with a GGUF file", options_.model.without_projector);
    add.text("--endpoint", "URL", "of the hub or a mirror (HF_ENDPOINT, or https://huggingface.co)", options_.endpoint);
    add.text("--cache-dir", "DIR", "instead of the hub's cache (HF_HUB_CACHE, HF_HOME)", options_.cache_dir);
    add_other_flags(add, common);
    add.footer(
        "Prints the model's folder, or its GGUF file if a TYPE (Q4_K_M) is given. HF_TOKEN gives access to private and "
        "gated models.");
  }

  EngineOptions* engine() override { return nullptr; }

  Result<Command> finish() override {
    if (options_.model.id.empty()) return invalid_argument("pull needs a model's id, org/name");
    if (!gguf_file_.empty() && !options_.model.gguf.empty())
      return invalid_argument(fmt::format("--gguf-file {} contradicts {}:{}; accepted: one of them", gguf_file_,
                                          options_.model.id, options_.model.gguf));
    if (!gguf_file_.empty()) options_.model.gguf = gguf_file_;
    if (!options_.model.projector.empty() && options_.model.without_projector)
      return invalid_argument("--no-mmproj contradicts --mmproj; accepted: one of them");
    if (!options_.model.projector.empty() && options_.model.gguf.empty())
      return invalid_argument("--mmproj goes with a GGUF file; accepted: org/name:TYPE, or --gguf-file");
    return Command(options_);
  }

 private:
  PullCommandOptions options_;
  std::string gguf_file_;
};

}  // namespace

std::unique_ptr<CommandParser> make_pull_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<PullParser>(add, common);
}

}  // namespace tessera::cli
