#include "tessera/cli/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "tessera/cli/command_parser.h"

namespace tessera::cli {
namespace {

struct CommandEntry {
  const char* name;
  const char* help;
  MakeCommandParser* make;
};

constexpr CommandEntry kCommands[] = {
    {"serve", "Serve a model over HTTP: OpenAI's protocol and SGLang's", make_serve_parser},
    {"generate", "Continue a text, streaming it to standard output; or answer a file of requests",
     make_generate_parser},
    {"chat", "Talk with a model in the terminal", make_chat_parser},
    {"score", "Write the logits and log-probabilities of given texts", make_score_parser},
    {"explain", "Show pieces, split ops, sizes, memory and rules, without loading weights", make_explain_parser},
    {"verify", "Compare every graph, bit for bit, with a run on isolated memory", make_verify_parser},
    {"bench", "Measure eager against graphs (prefill, decode, startup), or a server under load (serve)",
     make_bench_parser},
    {"tune", "Measure at once what a server measures in idle moments, for later starts", make_tune_parser},
    {"pull", "Fetch a model of the Hugging Face hub into its local cache", make_pull_parser},
    {"cache", "Show or clear what earlier runs measured (info, clear)", make_cache_parser},
    {"make-checkpoint", "Write random weights in Hugging Face's layout, from a config.json",
     make_make_checkpoint_parser},
    {"quantize", "Write a model with smaller weights: a GGUF file, or FP8, INT8, int4 and NVFP4 in safetensors",
     make_quantize_parser},
    {"calibrate", "Write an importance matrix for quantize: how large the inputs of a model's matrices are in a text",
     make_calibrate_parser},
    {"help", "List the commands, or a command's flags", make_help_parser},
    {"completion", "Print the completion of a shell (bash, zsh, fish)", make_completion_parser},
    {"man", "Print the manual page", make_man_parser},
};

constexpr const char* kAbout = "Tessera: runs language models through piecewise graphs.";

}  // namespace

std::string help_of_bare_command(std::shared_ptr<const Registry> registry, const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) return "";
  FlagParser parser(kAbout, TESSERA_VERSION);
  CommonFlags common{.registry = std::move(registry), .program = &parser};
  for (const CommandEntry& entry : kCommands) {
    if (entry.name != arguments[0]) continue;
    CommandFlags& flags = parser.add_command(entry.name, entry.help);
    const std::unique_ptr<CommandParser> command = entry.make(flags, common);
    const Result<std::string> help = parser.help_of(arguments[0]);
    if (help.ok() && flags.shown().has_words()) return *help + '\n';
  }
  return "";
}

Result<CommandLine> parse_command_line(std::shared_ptr<const Registry> registry,
                                       const std::vector<std::string>& arguments,
                                       std::function<Status(const std::string& file)> load_plugin) {
  FlagParser parser(kAbout, TESSERA_VERSION);
  CommonFlags common{.registry = std::move(registry), .load_plugin = std::move(load_plugin), .program = &parser};
  std::map<std::string, std::unique_ptr<CommandParser>> parsers;
  for (const CommandEntry& entry : kCommands)
    parsers.emplace(entry.name, entry.make(parser.add_command(entry.name, entry.help), common));

  const ParsedFlags parsed = TRY(parser.parse(arguments));
  if (parsed.command == nullptr)
    return CommandLine{.command = ShowText{parsed.show}, .log_levels = {}, .warnings = {}, .model = {}};
  CommandParser& chosen = *parsers.at(parsed.command->name());
  EngineOptions* engine = chosen.engine();
  if (engine != nullptr) TRY(finish_engine_flags(*engine, common));
  Command command = TRY(chosen.finish());
  std::vector<std::string> warnings = chosen.warnings();
  if (engine != nullptr) std::ranges::move(warnings_about(*engine, common), std::back_inserter(warnings));
  return CommandLine{.command = std::move(command),
                     .log_levels = common.log_levels,
                     .warnings = std::move(warnings),
                     .model = common.model,
                     .print_config = common.print_config,
                     .values = parsed.command->flag_values()};
}

}  // namespace tessera::cli
