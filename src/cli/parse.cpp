#include "tessera/cli/parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <deque>

#include "tessera/cli/known_flags.h"
#include "tessera/cli/values.h"
#include "tessera/piecewise/ladder.h"

namespace tessera::cli {
namespace {

// Adds options to one command. Values arrive as text; the first that is wrong is kept as the error.
class FlagAdder {
 public:
  FlagAdder(CLI::App& app, Status& error) : app_(app), error_(error) {}

  void group(std::string name) { group_ = std::move(name); }

  // `names`: "--dtype" or "--model-path,--model"; errors use the first. `take` returns Status.
  template <class Take>
  CLI::Option* value(const std::string& names, const std::string& type, const std::string& help, Take take) {
    const std::string flag = names.substr(0, names.find(','));
    return app_
        .add_option(
            names,
            [this, flag, take](const std::vector<std::string>& texts) {
              for (const std::string& text : texts) {
                if (Status status = take(flag, text); !status.ok() && error_.ok()) error_ = std::move(status);
              }
              return true;
            },
            help)
        ->type_name(type)
        ->group(group_);
  }
  // May be given several times.
  template <class Take>
  CLI::Option* values(const std::string& names, const std::string& type, const std::string& help, Take take) {
    return value(names, type, help, take)->expected(1)->take_all();
  }

  void text(const std::string& names, const std::string& type, const std::string& help, std::string& to) {
    value(names, type, help, [&to](const std::string& flag, const std::string& text) {
      if (text.empty()) return invalid_argument(fmt::format("{}: the value is empty", flag));
      to = text;
      return ok_status();
    });
  }
  void integer(const std::string& names, const std::string& help, IntegerRange range, std::int64_t& to) {
    value(names, "N", help, [&to, range](const std::string& flag, const std::string& text) {
      to = TRY(parse_integer(flag, text, range));
      return ok_status();
    });
  }
  // `choices` in the order of the enumeration's values.
  template <class Enum>
  void choice(const std::string& names, const std::string& help, std::vector<std::string_view> choices, Enum& to) {
    const std::string type = fmt::format("{}", fmt::join(choices, "|"));
    value(names, type, help, [&to, choices](const std::string& flag, const std::string& text) {
      to = static_cast<Enum>(TRY(parse_choice(flag, text, choices)));
      return ok_status();
    });
  }
  // A ladder in any of its spellings; several values are spread before parsing.
  void sizes(const std::string& name, const std::string& help, std::vector<std::int64_t>& to) {
    values(name, "LIST", help, [&to](const std::string& flag, const std::string& text) {
      const std::vector<std::int64_t> more = TRY(parse_ladder({&text, 1}, flag));
      to.insert(to.end(), more.begin(), more.end());
      std::sort(to.begin(), to.end());
      to.erase(std::unique(to.begin(), to.end()), to.end());
      return ok_status();
    });
  }
  void flag(const std::string& names, const std::string& help, bool& to) {
    app_.add_flag(names, to, help)->group(group_)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }

 private:
  CLI::App& app_;
  Status& error_;
  std::string group_;
};

// Flags whose values may follow one another without repeating the flag.
constexpr std::array<std::string_view, 5> kListFlags = {"--piecewise-cuda-graph-tokens", "--cuda-graph-bs",
                                                        "--cuda-graph-split-ops", "--num-tokens", "--batch-size"};

// Repeats a list flag before each of its values, and splits "--flag=" from its empty value.
std::vector<std::string> spread(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  const std::string* list = nullptr;
  bool first_value = false;
  for (const std::string& argument : arguments) {
    if (list != nullptr && !argument.starts_with("--")) {
      if (!first_value) words.push_back(*list);
      first_value = false;
      words.push_back(argument);
      continue;
    }
    list = std::find(kListFlags.begin(), kListFlags.end(), argument) != kListFlags.end() ? &argument : nullptr;
    first_value = list != nullptr;
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      words.push_back(argument.substr(0, argument.size() - 1));
      words.emplace_back();
    } else {
      words.push_back(argument);
    }
  }
  return words;
}

// What the flags of all commands say, beside EngineOptions.
struct Common {
  std::vector<std::string> log_levels;
  bool enable_piecewise = false;
  bool trust_remote_code = false;
};

void add_model_flags(FlagAdder& add, EngineOptions& engine, Common& common) {
  add.group("Model");
  add.text("--model-path,--model", "DIR", "model folder in Hugging Face's layout", engine.model_path);
  add.text("--tokenizer-path", "PATH", "tokenizer folder or tokenizer.json, if elsewhere", engine.tokenizer_path);
  add.choice("--load-format", "dummy: random weights, config.json is enough", {"auto", "safetensors", "dummy"},
             engine.load_format);
  add.value(
      "--dtype", "auto|float32|bfloat16|float16", "of weights, activations and KV cache",
      [&engine](const std::string& flag, const std::string& text) {
        static constexpr std::array<std::string_view, 5> kNames = {"auto", "float32", "bfloat16", "float16", "half"};
        engine.dtype = kNames[TRY(parse_choice(flag, text, kNames))];
        return ok_status();
      });
  add.value("--device", "cpu", "where it runs", [&engine](const std::string& flag, const std::string& text) {
    if (text != "cpu") return unimplemented(fmt::format("{}: \"{}\" is not supported; accepted is cpu", flag, text));
    engine.device = text;
    return ok_status();
  });
  add.group("");
  add.flag("--trust-remote-code", "accepted; nothing remote is ever run", common.trust_remote_code);
  for (const char* names : {"--tp-size,--tp,--tensor-parallel-size", "--pp-size", "--dp-size"}) {
    add.value(names, "1", "", [](const std::string& flag, const std::string& text) {
      if (TRY(parse_integer(flag, text, {})) == 1) return ok_status();
      return unimplemented(fmt::format("{}: {} is not supported yet; accepted is 1", flag, text));
    });
  }
}

void add_memory_flags(FlagAdder& add, EngineOptions& engine) {
  constexpr std::int64_t kMost = kMaxLadderSize;
  add.group("Memory and batches");
  add.integer("--context-length", "tokens of one request (the model's)", {}, engine.context_length);
  add.integer("--chunked-prefill-size", "most tokens of a forward (2048)", {1, kMost}, engine.chunked_prefill_size);
  add.integer("--max-running-requests", "most requests of a forward (256)", {1, 65536}, engine.max_running_requests);
  add.integer("--page-size", "tokens of a KV cache page (16)", {1, 1024}, engine.page_size);
  add.value("--mem-fraction-static", "X", "share of memory for weights and KV cache, 0.1 to 0.95",
            [&engine](const std::string& flag, const std::string& text) {
              const double share = TRY(parse_number(flag, text));
              if (!(share >= 0.1 && share <= 0.95))
                return invalid_argument(fmt::format("{}: {} is not accepted; 0.1 to 0.95 is", flag, text));
              engine.mem_fraction_static = share;
              return ok_status();
            });
  add.choice("--memory-plan", "isolated: each value in guarded memory of its own", {"planned", "isolated"},
             engine.memory_plan);
  add.value("--random-seed", "N", "of everything drawn at random",
            [&engine](const std::string& flag, const std::string& text) {
              engine.random_seed = static_cast<std::uint64_t>(TRY(parse_integer(flag, text, {0})));
              return ok_status();
            });
}

void add_graph_flags(FlagAdder& add, GraphOptions& graphs, Common& common) {
  constexpr IntegerRange kSize{1, kMaxLadderSize};
  add.group("Graphs");
  add.value("--cuda-graph-mode", "MODE", "off, piecewise, full, full_and_piecewise (default)",
            [&graphs](const std::string&, const std::string& text) {
              graphs.mode = TRY(parse_graph_mode(text));
              return ok_status();
            });
  add.flag("--disable-cuda-graph", "no graphs at all", graphs.disable_cuda_graph);
  add.flag("--disable-piecewise-cuda-graph", "prefill runs eagerly", graphs.disable_piecewise_cuda_graph);
  add.flag("--enforce-piecewise-cuda-graph", "skip the rules that turn them off (testing)",
           graphs.enforce_piecewise_cuda_graph);
  add.integer("--piecewise-cuda-graph-max-tokens", "largest prefill graph (the chunk size)", kSize,
              graphs.piecewise_max_tokens);
  add.sizes("--piecewise-cuda-graph-tokens", "sizes of prefill graphs: [64,128], 64,128 or 64 128",
            graphs.piecewise_tokens);
  add.value("--piecewise-cuda-graph-compiler", "eager", "how pieces are compiled",
            [](const std::string& flag, const std::string& text) {
              if (text == "eager") return ok_status();
              return unimplemented(fmt::format("{}: \"{}\" is not supported yet; accepted is eager", flag, text));
            });
  add.choice("--cuda-graph-schedule", "how prefill sizes are spaced", {"default", "legacy"}, graphs.schedule);
  add.integer("--cuda-graph-max-bs", "largest decode graph (256)", kSize, graphs.decode_max_batch);
  add.sizes("--cuda-graph-bs", "sizes of decode graphs", graphs.decode_batches);
  add.flag("--disable-cuda-graph-padding", "decode graphs serve exact sizes only", graphs.disable_cuda_graph_padding);
  add.values("--cuda-graph-split-ops", "OPS", "operators that run between pieces",
             [&graphs](const std::string& flag, const std::string& text) {
               for (std::size_t begin = 0; begin <= text.size();) {
                 const std::size_t end = std::min(text.find(',', begin), text.size());
                 if (end == begin) return invalid_argument(fmt::format("{}: \"{}\" has an empty name", flag, text));
                 graphs.split_ops.push_back(text.substr(begin, end - begin));
                 begin = end + 1;
               }
               return ok_status();
             });
  add.group("");
  add.flag("--enable-piecewise-cuda-graph", "deprecated", common.enable_piecewise);
}

void add_common_flags(CLI::App& app, FlagAdder& add, EngineOptions& engine, Common& common) {
  add_model_flags(add, engine, common);
  add_memory_flags(add, engine);
  add_graph_flags(add, engine.graphs, common);
  add.group("Other");
  add.values("--log-level", "LEVEL", "debug, info, warn, error, off; or topic=level; repeatable",
             [&common](const std::string&, const std::string& text) {
               common.log_levels.push_back(text);
               return ok_status();
             });
  app.set_help_flag("--help,-h", "this text")->group("Other");
}

// Of `generate` (one prompt) and `score` (a batch).
void add_prompt_flags(FlagAdder& add, bool batch, PromptOptions& prompt) {
  const auto text = [&prompt](const std::string& flag, const std::string& value) {
    if (value.empty()) return invalid_argument(fmt::format("{}: the text is empty", flag));
    prompt.texts.push_back(value);
    return ok_status();
  };
  const auto ids = [&prompt](const std::string& flag, const std::string& value) {
    prompt.ids.push_back(TRY(parse_token_ids(flag, value)));
    return ok_status();
  };
  const std::string more = batch ? "; repeatable: one batch" : "";
  if (batch) {
    add.values("--prompt", "TEXT", "text" + more, text);
    add.values("--input-ids", "LIST", "token ids \"1,2,3\"" + more, ids);
  } else {
    add.value("--prompt", "TEXT", "text to continue", text);
    add.text("--prompt-file", "FILE", "text to continue, from a file", prompt.file);
    add.value("--input-ids", "LIST", "token ids to continue, \"1,2,3\"; no tokenizer is needed", ids);
  }
}

void add_sampling_flags(FlagAdder& add, SamplingParams& sampling, bool& draws, bool& temperature_given) {
  add.group("Sampling (greedy unless one of these is given)");
  add.value("--temperature", "X", "0 is greedy; 1 with --top-k or --top-p alone",
            [&](const std::string& flag, const std::string& text) {
              sampling.temperature = TRY(parse_number(flag, text));
              temperature_given = true;
              if (sampling.temperature < 0)
                return invalid_argument(fmt::format("{}: {} is not accepted; 0 (greedy) or more is", flag, text));
              return ok_status();
            });
  add.value("--top-k", "N", "keep the N most probable; 0: all", [&](const std::string& flag, const std::string& text) {
    sampling.top_k = TRY(parse_integer(flag, text, {0, INT32_MAX}));
    draws = true;
    return ok_status();
  });
  add.value("--top-p", "X", "keep the smallest set of this probability; 1: all",
            [&](const std::string& flag, const std::string& text) {
              sampling.top_p = TRY(parse_number(flag, text));
              draws = true;
              if (!(sampling.top_p > 0 && sampling.top_p <= 1))
                return invalid_argument(fmt::format("{}: {} is not accepted; more than 0, at most 1 is", flag, text));
              return ok_status();
            });
  add.value("--seed", "N", "same seed, same tokens", [&](const std::string& flag, const std::string& text) {
    sampling.seed = TRY(parse_integer(flag, text, {0}));
    return ok_status();
  });
}

// All commands, each with the options it fills.
class Commands {
 public:
  Commands() : app_("Tessera: runs language models through piecewise graphs.", "tessera") {
    app_.set_help_flag("--help,-h", "this text");
    app_.set_version_flag("--version", "tessera " TESSERA_VERSION, "the version of this program");
    app_.allow_extras();
    app_.require_subcommand(0, 1);
    app_.get_formatter()->column_width(46);
    app_.get_formatter()->label("SUBCOMMAND", "COMMAND");
    app_.get_formatter()->label("Subcommands", "Commands");
    app_.footer("tessera COMMAND --help lists a command's flags.");
    add_generate();
    add_score();
    add_explain();
    add_verify();
    add_bench();
  }

  Result<CommandLine> parse(const std::vector<std::string>& arguments) {
    std::vector<std::string> words = spread(arguments);
    if (words.empty()) words.emplace_back("--help");
    std::reverse(words.begin(), words.end());
    try {
      app_.parse(std::move(words));
    } catch (const CLI::CallForHelp&) {
      return CommandLine{.command = ShowText{help_text()}, .log_levels = {}, .warnings = {}};
    } catch (const CLI::CallForVersion& version) {
      return CommandLine{.command = ShowText{std::string(version.what()) + "\n"}, .log_levels = {}, .warnings = {}};
    } catch (const CLI::ParseError& error) {
      return invalid_argument(error.what());
    }
    return chosen();
  }

 private:
  // Of the command that was named, else of the program; groups one line apart.
  std::string help_text() const {
    std::string text = app_.help();
    for (std::size_t at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at)) text.erase(at, 1);
    return text;
  }

  CLI::App* command(const std::string& name, const std::string& description) {
    CLI::App* app = app_.add_subcommand(name, description);
    app->group("Commands");
    app->allow_extras();
    return app;
  }

  void add_generate() {
    CLI::App* app = generate_app_ = command("generate", "Continue a text, streaming it to standard output");
    FlagAdder& add = adders_.emplace_back(*app, error_);
    add.group("Prompt and output");
    add_prompt_flags(add, /*batch=*/false, generate_.prompt);
    add.flag("--chat", "the prompt is a user's message in the model's chat template", generate_.chat);
    add.integer("--max-new-tokens", "at most so many (128)", {}, generate_.max_new_tokens);
    add.flag("--ignore-eos", "go on after an end-of-text token", generate_.ignore_eos);
    add.flag("--json", "one JSON object on standard output instead", generate_.json);
    add.flag("--stats", "a table of graphs and times on standard error", generate_.stats);
    add_sampling_flags(add, generate_.sampling, draws_, temperature_given_);
    add_common_flags(*app, add, generate_.engine, common_);
    app->footer("generation_config.json gives the end-of-text tokens; its sampling values are not applied.");
  }

  void add_score() {
    CLI::App* app = score_app_ = command("score", "Write the logits and log-probabilities of given texts");
    FlagAdder& add = adders_.emplace_back(*app, error_);
    add.group("Prompts and output");
    add_prompt_flags(add, /*batch=*/true, score_.prompts);
    add.text("--output", "FILE", "safetensors file: logits, logprobs (logits_0, … of several)", score_.output);
    add.flag("--json", "the summary as one JSON object", score_.json);
    add_common_flags(*app, add, score_.engine, common_);
  }

  void add_explain() {
    CLI::App* app = explain_app_ =
        command("explain", "Show pieces, split ops, sizes, memory and rules; needs config.json only");
    FlagAdder& add = adders_.emplace_back(*app, error_);
    add.group("What to show");
    add.value("--num-tokens", "N", "also what dispatch does with N tokens, and with N decoding requests",
              [this](const std::string& flag, const std::string& text) {
                explain_.num_tokens = TRY(parse_integer(flag, text, {1, INT32_MAX}));
                return ok_status();
              });
    add.choice("--format", "dot and svg: a picture", {"text", "json", "dot", "svg"}, explain_.format);
    add.text("--output", "FILE", "instead of standard output", explain_.output);
    add_common_flags(*app, add, explain_.engine, common_);
    app->footer("Exit code 1 where piecewise graphs would be off.");
  }

  void add_verify() {
    CLI::App* app = verify_app_ = command("verify", "Compare every graph, bit for bit, with a run on isolated memory");
    FlagAdder& add = adders_.emplace_back(*app, error_);
    add.group("Output");
    add.flag("--json", "the result as one JSON object", verify_.json);
    add_common_flags(*app, add, verify_.engine, common_);
    app->footer("Exit code 1 on any difference.");
  }

  void add_bench() {
    CLI::App* app = bench_app_ = command("bench", "Measure eager against graphs: prefill, decode or startup");
    FlagAdder& add = adders_.emplace_back(*app, error_);
    add.group("Measurement");
    app->add_option(
           "what",
           [this](const std::vector<std::string>& texts) {
             bench_what_ = texts[0];
             return true;
           },
           "prefill, decode or startup")
        ->type_name("");
    add.sizes("--num-tokens", "of bench prefill", bench_.num_tokens);
    add.sizes("--batch-size", "of bench decode", bench_.batch_sizes);
    add.value("--context", "N", "of bench decode: cached tokens of each request (128)",
              [this](const std::string& flag, const std::string& text) {
                bench_.context = TRY(parse_integer(flag, text, {2, INT32_MAX}));
                context_given_ = true;
                return ok_status();
              });
    add.integer("--repeat", "runs of each kind, of which the median counts (10)", {1, 1'000'000}, bench_.repeat);
    add.flag("--json", "the result as one JSON object", bench_.json);
    add_common_flags(*app, add, bench_.engine, common_);
  }

  Result<CommandLine> chosen() {
    const std::vector<CLI::App*> selected = app_.get_subcommands();
    if (selected.empty()) return unknown_command();
    CLI::App* app = selected[0];
    if (const std::vector<std::string> extras = app->remaining(); !extras.empty()) {
      std::vector<std::string> flags;
      for (const CLI::Option* option : app->get_options()) {
        for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
      }
      return unknown_argument(app->get_name(), extras[0], flags);
    }
    TRY(error_);
    CommandLine line{.command = TRY(options_of(app)), .log_levels = common_.log_levels, .warnings = {}};
    if (engine_of(app).model_path.empty()) return invalid_argument("--model-path is missing");
    if (common_.enable_piecewise) {
      const GraphOptions& graphs = engine_of(app).graphs;
      line.warnings.emplace_back(
          graphs.disable_cuda_graph || graphs.disable_piecewise_cuda_graph
              ? "--enable-piecewise-cuda-graph is overruled by the flag that disables it"
              : "--enable-piecewise-cuda-graph is deprecated: piecewise graphs are on by default");
    }
    return line;
  }

  Status unknown_command() const {
    const std::vector<std::string> extras = app_.remaining();
    std::vector<std::string> names;
    for (const CLI::App* app : app_.get_subcommands({})) names.push_back(app->get_name());
    const std::string accepted = fmt::format("accepted are {}", fmt::join(names, ", "));
    if (extras.empty()) return invalid_argument("no command is given; " + accepted);
    return invalid_argument(fmt::format("\"{}\" is no command; {}", extras[0], accepted));
  }

  const EngineOptions& engine_of(const CLI::App* app) const {
    return app == generate_app_  ? generate_.engine
           : app == score_app_   ? score_.engine
           : app == explain_app_ ? explain_.engine
           : app == verify_app_  ? verify_.engine
                                 : bench_.engine;
  }

  Result<Command> options_of(const CLI::App* app) {
    if (app == generate_app_) {
      TRY(check_prompts(generate_.prompt, /*batch=*/false));
      if (generate_.chat && !generate_.prompt.ids.empty())
        return invalid_argument("--chat goes with --prompt or --prompt-file, not with --input-ids");
      if (draws_ && !temperature_given_) generate_.sampling.temperature = 1;
      return Command(generate_);
    }
    if (app == score_app_) {
      TRY(check_prompts(score_.prompts, /*batch=*/true));
      if (score_.output.empty()) return invalid_argument("--output is missing");
      return Command(score_);
    }
    if (app == explain_app_) {
      const bool picture = explain_.format == ExplainFormat::kDot || explain_.format == ExplainFormat::kSvg;
      if (picture && explain_.num_tokens)
        return invalid_argument("--num-tokens goes with --format text or json, not with a picture");
      return Command(explain_);
    }
    if (app == verify_app_) return Command(verify_);
    return bench_options();
  }

  static Status check_prompts(const PromptOptions& prompt, bool batch) {
    const int kinds = !prompt.texts.empty() + !prompt.file.empty() + !prompt.ids.empty();
    if (kinds == 1) return ok_status();
    const std::string_view accepted = batch ? "--prompt or --input-ids" : "--prompt, --prompt-file or --input-ids";
    return invalid_argument(kinds == 0 ? fmt::format("a prompt is missing: give {}", accepted)
                                       : fmt::format("two kinds of prompt are given; accepted is one of {}", accepted));
  }

  Result<Command> bench_options() {
    static constexpr std::array<std::string_view, 3> kKinds = {"prefill", "decode", "startup"};
    if (bench_what_.empty()) return invalid_argument("bench of what is missing: accepted are prefill, decode, startup");
    bench_.kind = static_cast<BenchKind>(TRY(parse_choice("bench", bench_what_, kKinds)));
    const auto misplaced = [this](std::string_view flag) {
      return invalid_argument(fmt::format("{} does not go with bench {}", flag, bench_what_));
    };
    if (!bench_.num_tokens.empty() && bench_.kind != BenchKind::kPrefill) return misplaced("--num-tokens");
    if (!bench_.batch_sizes.empty() && bench_.kind != BenchKind::kDecode) return misplaced("--batch-size");
    if (context_given_ && bench_.kind != BenchKind::kDecode) return misplaced("--context");
    return Command(bench_);
  }

  CLI::App app_;
  Status error_;
  std::deque<FlagAdder> adders_;  // options call back into them
  Common common_;
  GenerateOptions generate_;
  ScoreOptions score_;
  ExplainOptions explain_;
  VerifyOptions verify_;
  BenchOptions bench_;
  CLI::App* generate_app_ = nullptr;
  CLI::App* score_app_ = nullptr;
  CLI::App* explain_app_ = nullptr;
  CLI::App* verify_app_ = nullptr;
  CLI::App* bench_app_ = nullptr;
  bool draws_ = false;  // a flag that only sampling heeds was given
  bool temperature_given_ = false;
  bool context_given_ = false;
  std::string bench_what_;
};

}  // namespace

Result<CommandLine> parse_command_line(std::vector<std::string> arguments) { return Commands().parse(arguments); }

}  // namespace tessera::cli
