// What each command was asked to do: plain structs, filled from the command line by parse.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/engine/request.h"

namespace tessera::cli {

// Exactly one of the three is given.
struct PromptOptions {
  std::vector<std::string> texts;
  std::string file;  // one text
  std::vector<std::vector<TokenId>> ids;
};

struct GenerateOptions {
  EngineOptions engine;
  PromptOptions prompt;  // one
  bool chat = false;     // the prompt is a user's message, written by the model's chat template
  SamplingParams sampling;
  std::int64_t max_new_tokens = 128;
  bool ignore_eos = false;
  bool json = false;
  bool stats = false;
};

struct ScoreOptions {
  EngineOptions engine;
  PromptOptions prompts;  // one batch
  std::string output;     // a .safetensors file
  bool json = false;
};

enum class ExplainFormat : std::uint8_t { kText, kJson, kDot, kSvg };

struct ExplainOptions {
  EngineOptions engine;
  std::optional<std::int64_t> num_tokens;  // also says what dispatch does with as many
  ExplainFormat format = ExplainFormat::kText;
  std::string output;  // a file; empty: standard output
};

struct VerifyOptions {
  EngineOptions engine;
  bool json = false;
};

enum class BenchKind : std::uint8_t { kPrefill, kDecode, kStartup };

struct BenchOptions {
  EngineOptions engine;
  BenchKind kind = BenchKind::kPrefill;
  std::vector<std::int64_t> num_tokens;   // of prefill; empty: a few up to the chunk size
  std::vector<std::int64_t> batch_sizes;  // of decode; empty: a few up to the largest
  std::int64_t context = 128;             // tokens in the cache of each decoding request
  std::int64_t repeat = 10;
  bool json = false;
};

// --help and --version: a text to print.
struct ShowText {
  std::string text;
};

using Command = std::variant<ShowText, GenerateOptions, ScoreOptions, ExplainOptions, VerifyOptions, BenchOptions>;

struct CommandLine {
  Command command;
  std::vector<std::string> log_levels;  // entries of set_log_level
  std::vector<std::string> warnings;    // about flags that are accepted and do nothing more
};

}  // namespace tessera::cli
