// What each command was asked to do: plain structs, filled from the command line by parse.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/engine/request.h"
#include "tessera/load/load.h"
#include "tessera/model/hub/hub_cache.h"
#include "tessera/model/weights/random_checkpoint.h"
#include "tessera/options/flags.h"
#include "tessera/options/model_source.h"
#include "tessera/server/server_options.h"

namespace tessera::cli {

// Exactly one of the first three is given.
struct PromptOptions {
  std::vector<std::string> texts;
  std::string file;  // one text
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::string> images{};  // files, of a single prompt, in the order of its placeholders
};

// What the flags of sampling_flags.h said; unset: the command's default.
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
  PromptOptions prompt;  // one
  bool chat = false;     // the prompt is a user's message, written by the model's chat template
  SamplingParams sampling;
  StopConditions stop;
  bool json = false;
  bool stats = false;
};

// `generate --input-file`: requests of the server's protocols from a file.
struct BatchOptions {
  EngineOptions engine;
  std::string input_file;
  std::string output_file;
  std::string served_model_name;  // what the requests call the model
  bool json = false;
};

struct ChatOptions {
  EngineOptions engine;
  std::string system;       // empty: none
  bool no_history = false;  // lines that are typed are not kept
  GivenSampling sampling;
};

struct ServeOptions {
  EngineOptions engine;
  ServerOptions server;
  std::int64_t replicas = 1;  // engines that share the requests
  std::string api_key_file;   // further keys, see api_keys.h; empty: none
  double drain_s = 30;        // that requests under way have to end
  double notice_s = 0;        // that connections are accepted for at least, once the server is told to stop
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
  std::string graph;          // by name, instead of the plan; engine/report/graph_export.h
  std::string export_folder;  // also writes all graphs there; empty: nowhere
  std::string output;         // a file; empty: standard output
  // A trace or metrics: instead, the prefill sizes that would fit it. Empty: none.
  std::string suggest_tokens;
};

struct VerifyOptions {
  EngineOptions engine;
  bool modes = false;      // every way to run, not only the one that the flags say
  std::int64_t soak = 0;   // random batches instead of every size; 0: none
  std::uint64_t seed = 1;  // of those
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
  std::vector<std::int64_t> num_tokens;   // of prefill; empty: a few up to the chunk size; of a profile none
  std::vector<std::int64_t> batch_sizes;  // of decode; empty: a few up to the largest; of a profile none
  std::vector<ImageSize> image_sizes;     // of vision; empty: six, from small to large
  std::vector<std::int64_t> images;       // of vision, encoded together; empty: 1, 4 and 16
  std::vector<std::string> compilers;     // of graphs: an engine each; empty: the engine's
  std::int64_t context = 128;             // tokens in the cache of each decoding request
  std::int64_t repeat = 10;
  std::string output;  // of a profile: the trace's file
  bool json = false;
};

// A load of requests on a server: one elsewhere, or of this process.
struct BenchServeOptions {
  EngineOptions engine;  // of a server of this process
  std::string url;       // of a server elsewhere; then there is no model
  std::string api_key;
  std::string served_model_name;    // empty: what the server says
  std::int64_t vocab_size = 32000;  // of a server elsewhere
  LoadOptions load;
  std::vector<double> request_rates;  // a run each; empty: as recorded, or all at once
  std::int64_t max_concurrency = 0;   // 0: any number
  std::int64_t warmup = 4;            // requests before each run that do not count
  std::vector<bool> graphs;           // an engine each, with or without; empty: one, as its options say
  std::string profile;                // file for a timeline of the engine's steps; empty: they are not profiled
  bool json = false;
};

// To do what a server does in idle moments.
struct TuneOptions {
  EngineOptions engine;
  bool json = false;
};

enum class CacheAction : std::uint8_t { kInfo, kClear };

// What earlier runs left in the cache folder.
struct CacheOptions {
  CacheAction action = CacheAction::kInfo;
  bool json = false;
};

struct PullCommandOptions {
  HubModel model;
  std::string endpoint;   // empty: the environment's
  std::string cache_dir;  // empty: the environment's
};

// A checkpoint of random weights.
struct MakeCheckpointOptions {
  std::shared_ptr<const Registry> registry;  // families and operators
  std::string config;                        // a config.json, or a folder that has one
  std::string folder;
  std::string tokenizer_path;        // empty: the one beside the config, if there is one
  std::optional<StoredDtype> dtype;  // none: the config's
  RandomCheckpointOptions checkpoint;
  bool overwrite = false;
};

// --help and --version: a text to print.
struct ShowText {
  std::string text;
};

using Command = std::variant<ShowText, GenerateOptions, BatchOptions, ChatOptions, ServeOptions, ScoreOptions,
                             ExplainOptions, VerifyOptions, BenchOptions, BenchServeOptions, PullCommandOptions,
                             CacheOptions, MakeCheckpointOptions, TuneOptions>;

struct CommandLine {
  Command command;
  std::vector<std::string> log_levels{};  // entries of set_log_level
  std::vector<std::string> warnings{};    // about flags that are accepted and do nothing more
  ModelSource model{};
  bool print_config = false;        // instead of running the command
  std::vector<FlagValue> values{};  // of the command's flags
};

}  // namespace tessera::cli
