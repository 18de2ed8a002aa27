// The options of each command: plain structs that parse.h fills from the command line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/request.h"
#include "tessera/load/load.h"
#include "tessera/model/hub/hub_cache.h"
#include "tessera/model/weights/random_checkpoint.h"
#include "tessera/options/flags.h"
#include "tessera/options/model_source.h"
#include "tessera/server/server_options.h"

namespace tessera::cli {

// The prompts. Exactly one of the first three members is given.
struct PromptOptions {
  std::vector<std::string> texts;
  std::string file;  // a file with one text
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::string> images{};  // image files for a single prompt, in the order of its placeholders
};

// The values of the flags in sampling_flags.h; unset: the command's default.
struct GivenSampling {
  std::optional<double> temperature{};
  std::optional<std::int64_t> top_k{};
  std::optional<double> top_p{};
  std::optional<double> min_p{};
  std::optional<double> repetition_penalty{};
  std::optional<double> presence_penalty{};
  std::optional<double> frequency_penalty{};
  std::optional<std::int64_t> seed{};
  std::vector<std::string> stop{};
  std::optional<std::int64_t> max_new_tokens{};
  bool ignore_eos = false;

  friend bool operator==(const GivenSampling&, const GivenSampling&) = default;
};

struct GenerateOptions {
  EngineOptions engine;
  PromptOptions prompt;  // exactly one prompt
  bool chat = false;     // the prompt is a user's message, rendered by the model's chat template
  SamplingParams sampling;
  StopConditions stop;
  bool json = false;
  bool stats = false;
};

// `generate --input-file`: runs requests of the server's protocols from a file.
struct BatchOptions {
  EngineOptions engine;
  std::string input_file;
  std::string output_file;
  std::string served_model_name;  // the model's name in requests
  bool json = false;
};

struct ChatOptions {
  EngineOptions engine;
  std::string system;       // "": no system message
  bool no_history = false;  // typed lines are not stored
  GivenSampling sampling;
};

struct ServeOptions {
  EngineOptions engine;
  ServerOptions server;
  std::int64_t replicas = 1;  // engines that share the requests
  std::string api_key_file;   // file with further keys, see api_keys.h; "": none
  std::string admin_api_key_file;
  double drain_s = 30;  // seconds that running requests have to end
  double notice_s = 0;  // minimum seconds that connections are accepted after the server is told to stop
};

struct ScoreOptions {
  EngineOptions engine;
  PromptOptions prompts;  // all in one batch
  std::string output;     // a .safetensors file
  bool json = false;
};

enum class ExplainFormat : std::uint8_t { kText, kJson, kDot, kSvg };

struct ExplainOptions {
  EngineOptions engine;
  std::optional<std::int64_t> num_tokens;  // also shows how dispatch runs this many tokens
  ExplainFormat format = ExplainFormat::kText;
  std::string graph;          // shows the graph of this name instead of the plan; engine/report/graph_export.h
  std::string export_folder;  // also writes all graphs to this folder; "": no export
  std::string output;         // a file; "": standard output
  // A trace or saved metrics for which prefill sizes are suggested instead of an explanation. "": none.
  std::string suggest_tokens;
};

struct VerifyOptions {
  EngineOptions engine;
  bool modes = false;      // checks every way to run, not only the one that the flags select
  std::int64_t soak = 0;   // number of random batches instead of every size; 0: none
  std::uint64_t seed = 1;  // seed of the random batches
  bool json = false;
};

enum class BenchKind : std::uint8_t { kPrefill, kDecode, kGraphs, kStartup, kProfile, kVision };

struct ImageSize {
  std::int64_t width = 0;  // pixels
  std::int64_t height = 0;
};

struct BenchOptions {
  EngineOptions engine;
  BenchKind kind = BenchKind::kPrefill;
  std::vector<std::int64_t> num_tokens;   // for prefill; empty: a few up to the chunk size; for profile: none
  std::vector<std::int64_t> batch_sizes;  // for decode; empty: a few up to the largest; for profile: none
  std::vector<ImageSize> image_sizes;     // for vision; empty: six, from small to large
  std::vector<std::int64_t> images;       // for vision: images encoded together; empty: 1, 4 and 16
  std::vector<std::string> compilers;     // for graphs: one engine for each; empty: the engine's compiler
  std::int64_t context = 128;             // tokens in the cache of each decoding request
  std::int64_t adapters = 0;              // for prefill, decode and profile: requests have one of so many in turn
  std::int64_t repeat = 10;
  std::string output;  // file for the trace of profile
  bool json = false;
};

// A load of requests, sent to a server in another process or in this one.
struct BenchServeOptions {
  EngineOptions engine;  // options of a server in this process
  std::string url;       // URL of another server; there is no model then
  std::string api_key;
  std::string served_model_name;    // "": the name that the server reports
  std::int64_t vocab_size = 32000;  // number of token ids, for another server
  LoadOptions load;
  std::vector<double> request_rates;  // one run for each; empty: as recorded, or all at once
  std::int64_t max_concurrency = 0;   // 0: no limit
  std::int64_t warmup = 4;            // requests before each run that do not count
  std::vector<bool> graphs;           // one engine for each, with or without graphs; empty: one engine, as its options
                                      // say
  std::string profile;                // file for a timeline of the engine's steps; "": no profile
  bool json = false;
};

// Does the measurements that a server does when it is idle.
struct TuneOptions {
  EngineOptions engine;
  bool json = false;
};

enum class CacheAction : std::uint8_t { kInfo, kClear };

// Shows or clears what earlier runs left in the cache folder.
struct CacheOptions {
  CacheAction action = CacheAction::kInfo;
  bool json = false;
};

struct PullCommandOptions {
  HubModel model;
  std::string endpoint;   // "": from the environment
  std::string cache_dir;  // "": from the environment
};

// Writes a checkpoint of random weights.
struct MakeCheckpointOptions {
  std::shared_ptr<const Registry> registry;  // families and operators
  std::string config;                        // a config.json, or a folder that has one
  std::string folder;
  std::string tokenizer_path;        // "": the one beside the config, if there is one
  std::optional<StoredDtype> dtype;  // unset: the config's
  RandomCheckpointOptions checkpoint;
  bool overwrite = false;
};

// Writes a checkpoint with smaller weights.
struct QuantizeOptions {
  std::shared_ptr<const Registry> registry;  // families
  std::string input;                         // path or id of the hub
  ModelSource source;
  std::string output;
  std::string type;
  bool overwrite = false;
  bool json = false;
};

// --help and --version: prints a text.
struct ShowText {
  std::string text;
};

using Command = std::variant<ShowText, GenerateOptions, BatchOptions, ChatOptions, ServeOptions, ScoreOptions,
                             ExplainOptions, VerifyOptions, BenchOptions, BenchServeOptions, PullCommandOptions,
                             CacheOptions, MakeCheckpointOptions, QuantizeOptions, TuneOptions>;

struct CommandLine {
  Command command;
  std::vector<std::string> log_levels{};  // arguments for set_log_level()
  std::vector<std::string> warnings{};    // about flags that are accepted but have no further effect
  ModelSource model{};
  bool print_config = false;        // prints the configuration instead of running the command
  std::vector<FlagValue> values{};  // values of the command's flags
};

}  // namespace tessera::cli
