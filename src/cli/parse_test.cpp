// Catches: a flag that does not set its option; a list that is misread in one of its spellings; a wrong command line
// that is accepted; an error that does not name the flag at fault.
#include "tessera/cli/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<CommandLine> parse(const std::vector<std::string>& arguments) {
  return parse_command_line(shared_built_ins(), arguments);
}

std::vector<std::string> generate_with(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"generate", "--model-path", "m", "--input-ids", "1,2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

GenerateOptions generate_options(std::vector<std::string> more) {
  Result<CommandLine> line = parse(generate_with(std::move(more)));
  EXPECT_TRUE(line.ok()) << line.status().message();
  return std::get<GenerateOptions>(line->command);
}

TEST(Parse, ReadsTheFlagsOfGenerate) {
  const GenerateOptions options =
      generate_options({"--max-new-tokens", "7", "--temperature", "0.5", "--top-k", "3", "--top-p=0.9", "--seed", "11",
                        "--ignore-eos", "--json", "--stats"});
  EXPECT_EQ(options.engine.model_path, "m");
  ASSERT_EQ(options.prompt.ids.size(), 1U);
  EXPECT_THAT(options.prompt.ids[0], ElementsAre(TokenId(1), TokenId(2)));
  EXPECT_EQ(options.stop.max_new_tokens, 7);
  EXPECT_EQ(options.sampling.temperature, 0.5);
  EXPECT_EQ(options.sampling.top_k, 3);
  EXPECT_EQ(options.sampling.top_p, 0.9);
  EXPECT_EQ(options.sampling.seed, 11);
  EXPECT_TRUE(options.stop.ignore_eos && options.json && options.stats);
}

TEST(Parse, ReadsADraftModelInBothSpellings) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "d",
                                 "--speculative-num-steps", "5"},
        {"--speculative-config", R"({"method": "draft_model", "model": "d", "num_speculative_tokens": 5})"},
        {"--speculative-config", R"({"num_speculative_tokens": 5, "model": "d"})"}}) {
    const DraftOptions drafts = generate_options(flags).engine.drafts;
    EXPECT_EQ(drafts.source, DraftSource::kModel) << flags[1];
    EXPECT_EQ(drafts.model_path, "d") << flags[1];
    EXPECT_EQ(drafts.layer_steps, 5) << flags[1];
    EXPECT_EQ(drafts.most_tokens, DraftOptions{}.most_tokens) << flags[1];
  }
}

TEST(Parse, IsGreedyUnlessAskedOtherwise) {
  EXPECT_EQ(generate_options({}).sampling.temperature, 0);
  EXPECT_EQ(generate_options({"--seed", "1"}).sampling.temperature, 0);
  EXPECT_EQ(generate_options({"--top-k", "5"}).sampling.temperature, 1);
  EXPECT_EQ(generate_options({"--top-p", "0.5", "--temperature", "0"}).sampling.temperature, 0);
}

TEST(Parse, ReadsSamplingFlags) {
  const GenerateOptions options =
      generate_options({"--min-p", "0.1", "--repetition-penalty", "1.5", "--presence-penalty", "-2",
                        "--frequency-penalty", "2", "--stop", "a", "--stop", "b,c"});
  EXPECT_EQ(options.sampling.temperature, 1);
  EXPECT_EQ(options.sampling.min_p, 0.1);
  EXPECT_EQ(options.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(options.sampling.presence_penalty, -2);
  EXPECT_EQ(options.sampling.frequency_penalty, 2);
  EXPECT_THAT(options.stop.texts, ElementsAre("a", "b,c"));
  EXPECT_EQ(options.stop.max_new_tokens, 128);
}

TEST(Parse, ReadsTheFlagsOfChat) {
  const Result<CommandLine> line =
      parse({"chat", "--model-path", "m", "--system", "Be short.", "--top-p", "0.5", "--max-new-tokens", "9"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  const ChatOptions& chat = std::get<ChatOptions>(line->command);
  EXPECT_EQ(chat.system, "Be short.");
  EXPECT_EQ(chat.sampling.top_p, 0.5);
  EXPECT_EQ(chat.sampling.max_new_tokens, 9);
  EXPECT_FALSE(chat.sampling.temperature);  // unset: the model's own default applies
}

TEST(Parse, ReadsTheFlagsOfBatches) {
  const Result<CommandLine> line =
      parse({"generate", "--model-path", "m", "--input-file", "in", "--output-file", "out", "--json"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  const BatchOptions& batch = std::get<BatchOptions>(line->command);
  EXPECT_EQ(batch.engine.model_path, "m");
  EXPECT_EQ(batch.input_file, "in");
  EXPECT_EQ(batch.output_file, "out");
  EXPECT_EQ(batch.served_model_name, "m");
  EXPECT_TRUE(batch.json);
}

TEST(Parse, ServedNameIsTheGivenModel) {
  EXPECT_EQ(std::get<ServeOptions>(parse({"serve", "--model-path", "org/m"})->command).server.served_model_name,
            "org/m");
  EXPECT_EQ(std::get<ServeOptions>(parse({"serve", "--model-path", "org/m", "--served-model-name", "n"})->command)
                .server.served_model_name,
            "n");
}

TEST(Parse, ReadsEngineOptions) {
  const EngineOptions engine = generate_options({"--tokenizer-path",
                                                 "t",
                                                 "--load-format",
                                                 "dummy",
                                                 "--dtype",
                                                 "bfloat16",
                                                 "--device",
                                                 "cpu",
                                                 "--context-length",
                                                 "100",
                                                 "--chunked-prefill-size",
                                                 "64",
                                                 "--max-running-requests",
                                                 "3",
                                                 "--page-size",
                                                 "8",
                                                 "--mem-fraction-static",
                                                 "0.5",
                                                 "--memory-plan",
                                                 "isolated",
                                                 "--random-seed",
                                                 "9",
                                                 "--tp-size",
                                                 "2",
                                                 "--trust-remote-code"})
                                   .engine;
  EXPECT_EQ(engine.tokenizer_path, "t");
  EXPECT_EQ(engine.load_format, LoadFormat::kDummy);
  EXPECT_EQ(engine.dtype, "bfloat16");
  EXPECT_EQ(engine.context_length, 100);
  EXPECT_EQ(engine.chunked_prefill_size, 64);
  EXPECT_EQ(engine.max_running_requests, 3);
  EXPECT_EQ(engine.page_size, 8);
  EXPECT_EQ(engine.mem_fraction_static, 0.5);
  EXPECT_EQ(engine.memory_plan, MemoryPlanKind::kIsolated);
  EXPECT_EQ(engine.random_seed, 9U);
  EXPECT_EQ(engine.tp_size, 2);
}

TEST(Parse, ReadsGraphOptions) {
  const GraphOptions graphs =
      generate_options({"--cuda-graph-mode", "piecewise", "--disable-cuda-graph", "--disable-piecewise-cuda-graph",
                        "--enforce-piecewise-cuda-graph", "--disable-cuda-graph-padding",
                        "--piecewise-cuda-graph-max-tokens", "512", "--cuda-graph-schedule", "legacy",
                        "--cuda-graph-max-bs", "16", "--piecewise-cuda-graph-compiler", "eager",
                        "--cuda-graph-split-ops", "attention,all_reduce"})
          .engine.graphs;
  EXPECT_EQ(graphs.mode, GraphMode::kPiecewise);
  EXPECT_TRUE(graphs.disable_cuda_graph && graphs.disable_piecewise_cuda_graph && graphs.enforce_piecewise_cuda_graph);
  EXPECT_TRUE(graphs.disable_cuda_graph_padding);
  EXPECT_EQ(graphs.piecewise_max_tokens, 512);
  EXPECT_EQ(graphs.schedule, PrefillSchedule::kLegacy);
  EXPECT_EQ(graphs.decode_max_batch, 16);
  EXPECT_THAT(graphs.split_ops, ElementsAre("attention", "all_reduce"));
}

TEST(Parse, ReadsListsInEverySpelling) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--piecewise-cuda-graph-tokens", "[128, 64]"},
                                             {"--piecewise-cuda-graph-tokens", "128,64"},
                                             {"--piecewise-cuda-graph-tokens=64,128"},
                                             {"--piecewise-cuda-graph-tokens", "128", "64", "64"},
                                             {"--piecewise-cuda-graph-tokens", "128", "64", "--json"}}) {
    EXPECT_THAT(generate_options(words).engine.graphs.piecewise_tokens, ElementsAre(64, 128)) << words[1];
  }
}

TEST(Parse, ScoreTakesSeveralPrompts) {
  const Result<CommandLine> line =
      parse({"score", "--model", "m", "--output", "f", "--prompt", "a b", "--prompt", "--json"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_THAT(std::get<ScoreOptions>(line->command).prompts.texts, ElementsAre("a b", "--json"));
}

TEST(Parse, ReadsTheFlagsOfBench) {
  const Result<CommandLine> line =
      parse({"bench", "decode", "--model-path", "m", "--batch-size", "8,1", "--context", "32", "--repeat", "3"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  const BenchOptions& options = std::get<BenchOptions>(line->command);
  EXPECT_EQ(options.kind, BenchKind::kDecode);
  EXPECT_THAT(options.batch_sizes, ElementsAre(1, 8));
  EXPECT_EQ(options.context, 32);
  EXPECT_EQ(options.repeat, 3);
}

TEST(Parse, ReadsModelsOfTheHub) {
  const Result<CommandLine> generate = parse(generate_with({"--revision", "v1", "--download"}));
  ASSERT_TRUE(generate.ok()) << generate.status().message();
  EXPECT_EQ(generate->model.revision, "v1");
  EXPECT_TRUE(generate->model.download);

  const Result<CommandLine> line = parse({"pull", "org/name", "--revision", "v1", "--endpoint", "http://x",
                                          "--cache-dir", "c", "--log-level", "hub=info"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  const PullCommandOptions& pull = std::get<PullCommandOptions>(line->command);
  EXPECT_EQ(pull.model.id, "org/name");
  EXPECT_EQ(pull.model.revision, "v1");
  EXPECT_EQ(pull.endpoint, "http://x");
  EXPECT_EQ(pull.cache_dir, "c");
  EXPECT_THAT(line->log_levels, ElementsAre("hub=info"));
  EXPECT_EQ(std::get<PullCommandOptions>(parse({"pull", "name"})->command).model.revision, "main");
  EXPECT_EQ(std::get<PullCommandOptions>(parse({"pull", "a/b", "--gguf-file", "Q4_0"})->command).model.gguf, "Q4_0");
}

// The parsers of all commands share the model's flags, but only calibrate sets no_mmproj by itself.
TEST(Parse, CalibrateAloneUsesNoProjector) {
  EXPECT_FALSE(parse(generate_with({}))->model.no_mmproj);
  EXPECT_TRUE(parse(generate_with({"--no-mmproj"}))->model.no_mmproj);
  const Result<CommandLine> named = parse(generate_with({"--mmproj", "mmproj-F16.gguf"}));
  EXPECT_EQ(named->model.mmproj, "mmproj-F16.gguf");
  EXPECT_FALSE(named->model.no_mmproj);
  EXPECT_TRUE(parse({"calibrate", "m", "t.txt", "-o", "i.gguf"})->model.no_mmproj);
  EXPECT_THAT(parse({"calibrate", "m", "t.txt", "-o", "i.gguf", "--mmproj", "p.gguf"}).status().message(),
              HasSubstr("--mmproj does not go with calibrate"));
}

TEST(Parse, ReadsTheFlagsOfCache) {
  EXPECT_EQ(std::get<CacheOptions>(parse({"cache", "info"})->command).action, CacheAction::kInfo);
  const CacheOptions clear = std::get<CacheOptions>(parse({"cache", "clear", "--json"})->command);
  EXPECT_EQ(clear.action, CacheAction::kClear);
  EXPECT_TRUE(clear.json);
}

TEST(Parse, DeprecatedFlagWarnsOnce) {
  EXPECT_THAT(parse(generate_with({"--enable-piecewise-cuda-graph"}))->warnings,
              ElementsAre(HasSubstr("--enable-piecewise-cuda-graph is deprecated")));
  EXPECT_THAT(parse(generate_with({"--enable-piecewise-cuda-graph", "--disable-cuda-graph"}))->warnings,
              ElementsAre(HasSubstr("overruled")));
}

TEST(Parse, ShowsHelpAndVersion) {
  EXPECT_THAT(std::get<ShowText>(parse({"--help"})->command).text, HasSubstr("Commands:"));
  EXPECT_THAT(std::get<ShowText>(parse({})->command).text, HasSubstr("Commands:"));
  EXPECT_THAT(std::get<ShowText>(parse({"generate", "--help"})->command).text, HasSubstr("--max-new-tokens"));
  EXPECT_THAT(std::get<ShowText>(parse({"--version"})->command).text, HasSubstr("tessera "));
}

struct WrongLine {
  std::vector<std::string> arguments;
  std::string message;  // a part of the message
};

class WrongLines : public ::testing::TestWithParam<WrongLine> {};

TEST_P(WrongLines, AreRefusedNamingTheFlag) {
  const Result<CommandLine> line = parse(GetParam().arguments);
  ASSERT_FALSE(line.ok());
  EXPECT_THAT(line.status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Flags, WrongLines,
    ::testing::Values(
        WrongLine{{"generat"}, "\"generat\" is no command; accepted are serve, generate, chat, score"},
        WrongLine{{"generate", "--prompt", "x"}, "--model-path is missing"},
        WrongLine{{"generate", "--model-path", "m"},
                  "a prompt is missing: give --prompt, --prompt-file or --input-ids"},
        WrongLine{{"generate", "--model-path", "m", "--prompt", ""}, "--prompt: the text is empty"},
        WrongLine{{"generate", "--model-path", "m", "--prompt="}, "--prompt: the text is empty"},
        WrongLine{generate_with({"--prompt", "x"}), "two kinds of prompt"},
        WrongLine{generate_with({"--chat"}), "--chat goes with --prompt"},
        WrongLine{generate_with({"--max-new-token", "3"}),
                  "unknown flag --max-new-token of generate; did you mean --max-new-tokens?"},
        WrongLine{generate_with({"--zzz"}), "unknown flag --zzz of generate; tessera generate --help lists"},
        WrongLine{generate_with({"word"}), "unexpected argument \"word\""},
        WrongLine{generate_with({"--quantization", "fp9"}), "--quantization: \"fp9\" is not accepted"},
        WrongLine{generate_with({"--kv-cache-dtype=fp8_e5m2"}),
                  "--kv-cache-dtype: \"fp8_e5m2\" is not supported; accepted is auto, float32, bfloat16, float16"},
        WrongLine{generate_with({"--cuda-graph-capture", "soon"}),
                  "--cuda-graph-capture: \"soon\" is not accepted; auto, eager, lazy, core is"},
        WrongLine{generate_with({"--cuda-graph-schedule", "dense"}),
                  "--cuda-graph-schedule: \"dense\" is not accepted; default, legacy, auto is"},
        WrongLine{generate_with({"--cuda-graph-memory-budget", "much"}),
                  "--cuda-graph-memory-budget: \"much\" is not accepted; bytes are"},
        WrongLine{generate_with({"--cuda-graph-disable-passes", "a,"}),
                  "--cuda-graph-disable-passes: \"a,\" has an empty name"},
        WrongLine{generate_with({"--torch-compile-max-bs", "0"}), "--torch-compile-max-bs: \"0\" is not accepted"},
        WrongLine{{"cache"}, "cache needs an action: info or clear"},
        WrongLine{{"cache", "drop"}, "cache: \"drop\" is not accepted; info, clear is"},
        WrongLine{{"cache", "info", "--model-path", "m"}, "unknown flag --model-path of cache"},
        WrongLine{generate_with({"--tp", "65"}), "--tp-size: \"65\" is not accepted; a whole number from 1 to 64 is"},
        WrongLine{generate_with({"--pp-size", "0"}),
                  "--pp-size: \"0\" is not accepted; a whole number from 1 to 64 is"},
        WrongLine{generate_with({"--device", "npu"}),
                  "--device: \"npu\" is not the name of a device; accepted: cpu, cuda and cuda:N"},
        WrongLine{generate_with({"--dtype", "int8"}), "--dtype: \"int8\" is not accepted"},
        WrongLine{generate_with({"--temperature", "-1"}),
                  "--temperature: -1 is not accepted; a number of 0 (greedy) or more is"},
        WrongLine{generate_with({"--top-p", "0"}), "--top-p: 0 is not accepted; a number in (0, 1] is"},
        WrongLine{generate_with({"--top-k", "-1"}), "--top-k: \"-1\" is not accepted"},
        WrongLine{generate_with({"--max-new-tokens", "0"}), "--max-new-tokens: \"0\" is not accepted"},
        WrongLine{generate_with({"--max-new-tokens"}), "--max-new-tokens: the value is missing"},
        WrongLine{generate_with({"--seed", "1", "--seed", "2"}), "--seed: given more than once"},
        WrongLine{generate_with({"--json=yes"}), "--json: \"yes\" is not accepted; false, true is"},
        WrongLine{generate_with({"--page-size", "2000"}),
                  "--page-size: \"2000\" is not accepted; a whole number from 1 to 1024 is"},
        WrongLine{generate_with({"--mem-fraction-static", "1"}),
                  "--mem-fraction-static: 1 is not accepted; 0.1 to 0.95 is"},
        WrongLine{generate_with({"--cuda-graph-mode", "fast"}), "--cuda-graph-mode: \"fast\" is none of"},
        WrongLine{generate_with({"--piecewise-cuda-graph-compiler", "fast"}),
                  "--piecewise-cuda-graph-compiler: no compiler is named \"fast\"; there are eager, fused"},
        WrongLine{generate_with({"--piecewise-cuda-graph-tokens", "0"}),
                  "--piecewise-cuda-graph-tokens: \"0\" is not a size"},
        WrongLine{generate_with({"--piecewise-cuda-graph-tokens", "-4"}),
                  "--piecewise-cuda-graph-tokens: \"-4\" is not a size"},
        WrongLine{generate_with({"--piecewise-cuda-graph-tokens", "[]"}),
                  "--piecewise-cuda-graph-tokens: \"\" is not a size"},
        WrongLine{generate_with({"--piecewise-cuda-graph-tokens", "4,x"}),
                  "--piecewise-cuda-graph-tokens: \"x\" is not a size"},
        WrongLine{generate_with({"--cuda-graph-bs", "1048577"}), "--cuda-graph-bs: \"1048577\" is not a size"},
        WrongLine{generate_with({"--cuda-graph-split-ops", "a,,b"}),
                  "--cuda-graph-split-ops: \"a,,b\" has an empty name"},
        WrongLine{{"score", "--model-path", "m", "--input-ids", "1"}, "--output is missing"},
        WrongLine{{"score", "--model-path", "m", "--output", "f"}, "a prompt is missing: give --prompt or --input-ids"},
        WrongLine{{"explain", "--model-path", "m", "--format", "svg", "--num-tokens", "3"}, "--num-tokens goes with"},
        WrongLine{{"pull"}, "pull needs a model's id"},
        WrongLine{{"pull", "a/b/c"}, "pull: \"a/b/c\" is no id of the hub; accepted is org/name"},
        WrongLine{{"pull", "a/b:Q4_0", "--gguf-file", "Q8_0"}, "--gguf-file Q8_0 contradicts a/b:Q4_0"},
        WrongLine{{"pull", "a/b", "--revision="}, "--revision: the value is empty"},
        WrongLine{{"bench", "--model-path", "m"}, "bench needs what to measure"},
        WrongLine{{"bench", "speed", "--model-path", "m"},
                  "bench: \"speed\" is not accepted; prefill, decode, graphs, startup, profile, vision, serve is"},
        WrongLine{{"bench", "decode", "--model-path", "m", "--num-prompts", "3"},
                  "--num-prompts does not go with bench decode"},
        WrongLine{generate_with({"--input-file", "f", "--output-file", "o"}), "--input-file has its own prompts"},
        WrongLine{{"generate", "--model-path", "m", "--input-file", "f"}, "--output-file is missing"},
        WrongLine{{"generate", "--model-path", "m", "--input-file", "f", "--output-file", "o", "--seed", "1"},
                  "--input-file: each request has its own sampling"},
        WrongLine{generate_with({"--output-file", "o"}), "--output-file goes with --input-file alone"},
        WrongLine{generate_with({"--min-p", "1.5"}), "--min-p: 1.5 is not accepted; a number in [0, 1] is"},
        WrongLine{generate_with({"--repetition-penalty", "0"}), "--repetition-penalty: 0 is not accepted"},
        WrongLine{generate_with({"--presence-penalty", "3"}),
                  "--presence-penalty: 3 is not accepted; a number in [-2, 2] is"},
        WrongLine{generate_with({"--stop", ""}), "--stop: the text is empty"},
        WrongLine{{"chat", "--model-path", "m", "--system="}, "--system: the value is empty"},
        WrongLine{{"chat", "--model-path", "m", "--prompt", "x"}, "unknown flag --prompt of chat"},
        WrongLine{{"bench", "startup", "--model-path", "m", "--num-tokens", "3"},
                  "--num-tokens does not go with bench startup"}));

TEST(Parse, ServesEmbeddingsIfAsked) {
  EXPECT_TRUE(
      std::get<ServeOptions>(parse({"serve", "--model-path", "m", "--is-embedding"})->command).engine.is_embedding);
  EXPECT_FALSE(std::get<ServeOptions>(parse({"serve", "--model-path", "m"})->command).engine.is_embedding);
}

}  // namespace
}  // namespace tessera::cli
