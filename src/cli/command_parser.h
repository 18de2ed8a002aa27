// Parses the flags of one command, and sets the command's options. Each command has its parser in a file of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/options/engine_flags.h"
#include "tessera/options/flags.h"

namespace tessera::cli {

class CommandParser {
 public:
  virtual ~CommandParser() = default;
  // Returns the engine's options. Returns null if the command loads no model.
  virtual EngineOptions* engine() = 0;
  // Checks conditions on several flags, and returns the command. Called after all flags are parsed.
  virtual Result<Command> finish() = 0;
  // Returns warnings about flags without effect, in addition to those of warnings_about(). Called after finish().
  virtual std::vector<std::string> warnings() const { return {}; }
};

using MakeCommandParser = std::unique_ptr<CommandParser>(CommandFlags& add, CommonFlags& common);

MakeCommandParser make_generate_parser;
MakeCommandParser make_chat_parser;
MakeCommandParser make_score_parser;
MakeCommandParser make_serve_parser;
MakeCommandParser make_explain_parser;
MakeCommandParser make_verify_parser;
MakeCommandParser make_bench_parser;
MakeCommandParser make_tune_parser;
MakeCommandParser make_pull_parser;
MakeCommandParser make_cache_parser;
MakeCommandParser make_make_checkpoint_parser;
MakeCommandParser make_quantize_parser;
MakeCommandParser make_calibrate_parser;
MakeCommandParser make_help_parser;
MakeCommandParser make_completion_parser;
MakeCommandParser make_man_parser;

}  // namespace tessera::cli
