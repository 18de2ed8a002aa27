// Defines the options of each command as plain structs, which are filled from the command line (parse.h).
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

// The values of the flags in sampling_flags.h. An unset value means the command's default.
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

// The options of `generate --input-file`, which runs requests of the server's protocols from a file.
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
  bool no_history = false;  // whether typed lines are not stored in a history
  GivenSampling sampling;
};

struct ServeOptions {
  EngineOptions engine;
  ServerOptions server;
  std::int64_t replicas = 1;  // engines that share the requests
  std::string api_key_file;   // file with more keys (api_keys.h); "": none
  std::string admin_api_key_file;
  double drain_s = 30;  // seconds for which running requests may continue after a stop signal
  double notice_s = 0;  // minimum seconds for which connections are accepted after a stop signal
};

struct ScoreOptions {
  EngineOptions engine;
  PromptOptions prompts;  // prompts that all run in one batch
  std::string output;     // a .safetensors file
  bool json = false;
};

enum class ExplainFormat : std::uint8_t { kText, kJson, kDot, kSvg };

struct ExplainOptions {
  EngineOptions engine;
  std::optional<std::int64_t> num_tokens;  // if set, `explain` also shows how dispatch runs this many tokens
  ExplainFormat format = ExplainFormat::kText;
  std::string graph;          // name of a graph to show instead of the plan (engine/plan/graph_export.h)
  std::string export_folder;  // folder to which all graphs are also written; "": none
  std::string output;         // file to write to; "": standard output
  // A file with a trace or saved metrics. If given, `explain` only suggests prefill sizes for it. "": none.
  std::string suggest_tokens;
};

struct VerifyOptions {
  EngineOptions engine;
  bool modes = false;      // whether to check every mode, not only the one that the flags select
  std::int64_t soak = 0;   // number of random batches to run instead of checking every size; 0: checks every size
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
  // Token counts for the benchmarks prefill, graphs and profile. If empty, profile runs no prefill, and the other
  // benchmarks choose the counts.
  std::vector<std::int64_t> num_tokens;
  // Request counts for the benchmarks decode, graphs and profile. If empty, profile runs no decode, and the other
  // benchmarks choose the counts.
  std::vector<std::int64_t> batch_sizes;
  std::vector<ImageSize> image_sizes;  // for vision; empty: six sizes from small to large
  std::vector<std::int64_t> images;    // for vision: numbers of images encoded together; empty: 1, 4 and 16
  std::vector<std::string> compilers;  // for graphs: starts an engine with each; empty: the engine's compiler
  std::int64_t context = 128;          // tokens in the KV cache for each decoding request
  // For prefill, decode and profile: number of adapters that the requests use in turn.
  std::int64_t adapters = 0;
  std::int64_t repeat = 10;
  std::string output;  // file for the trace of profile
  bool json = false;
};

// The options of `bench serve`, which sends a load of requests to a server in another process or in this one.
struct BenchServeOptions {
  EngineOptions engine;  // options of a server in this process
  std::string url;       // URL of another server; no model is loaded then
  std::string api_key;
  std::string served_model_name;    // "": the name that the server reports
  std::int64_t vocab_size = 32000;  // number of token ids, if another server has the model
  LoadOptions load;
  // The benchmark makes one run for each rate. If empty, it makes one run, with the recorded arrival times or with all
  // requests at once.
  std::vector<double> request_rates;
  std::int64_t max_concurrency = 0;  // 0: no limit
  std::int64_t warmup = 4;           // uncounted requests before each run
  // The benchmark starts one engine for each entry, one after another: with graphs (true) or without graphs (false). If
  // empty, it starts a single engine with the graph settings of the options in `engine`.
  std::vector<bool> graphs;
  std::string profile;  // file for a timeline of the engine's steps; "": no profile
  bool json = false;
};

// The options of `tune`, which makes the measurements that an idle server would make.
struct TuneOptions {
  EngineOptions engine;
  bool json = false;
};

enum class CacheAction : std::uint8_t { kInfo, kClear };

// The options of `cache`, which shows or clears what earlier runs stored in the cache folder.
struct CacheOptions {
  CacheAction action = CacheAction::kInfo;
  bool json = false;
};

struct PullCommandOptions {
  HubModel model;
  std::string endpoint;   // "": taken from the environment
  std::string cache_dir;  // "": taken from the environment
};

// The options of `make-checkpoint`, which writes a checkpoint of random weights.
struct MakeCheckpointOptions {
  std::shared_ptr<const Registry> registry;  // contains the model families and operators
  std::string config;                        // path of a config.json, or of a folder that has one
  std::string folder;
  std::string tokenizer_path;        // folder of the tokenizer; "": the config's folder, if a tokenizer is there
  std::optional<StoredDtype> dtype;  // unset: the config's data type
  RandomCheckpointOptions checkpoint;
  bool overwrite = false;
};

// The options of `quantize`, which writes a checkpoint with quantised weights.
struct QuantizeOptions {
  std::shared_ptr<const Registry> registry;  // contains the model families
  std::string input;                         // path or hub id of the model
  ModelSource source;
  std::string output;
  std::string type;
  std::string importance;  // file with an importance matrix; "": none
  bool overwrite = false;
  bool json = false;
};

// The options of `calibrate`, which writes a model's importance matrix.
struct CalibrateOptions {
  EngineOptions engine;
  std::string text;  // file with the text
  std::string output;
  std::int64_t chunk_tokens = 512;
  std::int64_t most_chunks = 0;  // 0: all of the text
  bool overwrite = false;
  bool json = false;
};

// A text that --help or --version prints.
struct ShowText {
  std::string text;
};

using Command = std::variant<ShowText, GenerateOptions, BatchOptions, ChatOptions, ServeOptions, ScoreOptions,
                             ExplainOptions, VerifyOptions, BenchOptions, BenchServeOptions, PullCommandOptions,
                             CacheOptions, MakeCheckpointOptions, QuantizeOptions, CalibrateOptions, TuneOptions>;

struct CommandLine {
  Command command;
  std::vector<std::string> log_levels{};  // arguments for set_log_level()
  std::vector<std::string> warnings{};    // warnings about accepted flags without effect
  ModelSource model{};
  bool print_config = false;        // whether to print the configuration instead of running the command
  std::vector<FlagValue> values{};  // values of the command's flags
};

}  // namespace tessera::cli
