// One command's flags, and the options that they come to. Each command's parser stands in a file of its own.
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
  // The engine's options of a command that loads a model; else null.
  virtual EngineOptions* engine() = 0;
  // Once the flags are parsed: checks what no single flag can tell.
  virtual Result<Command> finish() = 0;
  // After finish(): what was asked for and has no effect, beside what warnings_about() finds.
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
MakeCommandParser make_help_parser;
MakeCommandParser make_completion_parser;
MakeCommandParser make_man_parser;

}  // namespace tessera::cli
