// Catches: a flag of SGLang that is unknown, silently ignored or has another meaning; a configuration file that
// overrides the command line or is applied only in part; an error in such a file that does not name file and line; and
// a printed effective configuration that has another effect when it is read back.
#include "tessera/options/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/cli/documented_flags.h"
#include "tessera/cli/parse.h"
#include "tessera/cli/session/effective_config.h"
#include "tessera/device/testing/described_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/model/test_support.h"

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const std::string kModel = testing::data_path("goldens/llama");

// Parses flags of `serve`. If `words` begin with neither `serve` nor --model…, adds the test's model first.
Result<CommandLine> parse_serve(std::vector<std::string> words) {
  if (words[0].starts_with("--model")) words.insert(words.begin(), "serve");
  if (words[0] != "serve") words.insert(words.begin(), {"serve", "--model-path", kModel});
  return parse_command_line(shared_built_ins(), words);
}

TEST(DocumentedFlags, AreAcceptedWarnedAboutOrRefused) {
  for (const Documented& flag : documented()) {
    const std::string what = ::testing::PrintToString(flag.words);
    const Result<CommandLine> line = parse_serve(flag.words);
    ASSERT_TRUE(line.ok()) << what << line.status().message();
    if (flag.treatment == Treatment::kWarned) {
      EXPECT_THAT(line->warnings, ElementsAre(StartsWith(flag.words[0]))) << what;
    } else {
      EXPECT_THAT(line->warnings, IsEmpty()) << what;
    }
    const std::string name = flag.refused[0].substr(0, flag.refused[0].find('='));
    const Status refused = parse_serve(flag.refused).status();
    EXPECT_FALSE(refused.ok()) << what;
    const bool names_it = refused.message().starts_with(name) || name == "--model" || name.starts_with("--t");
    EXPECT_TRUE(names_it) << what << refused.message();
  }
}

TEST(DocumentedFlags, EveryFlagOfServeIsDocumentedOrOurs) {
  std::set<std::string> known = {"--tokenizer-path",
                                 "--download",
                                 "--max-total-tokens",
                                 "--disable-radix-cache",
                                 "--memory-plan",
                                 "--enable-deterministic-inference",
                                 "--cors-allow-origins",
                                 "--metrics-style",
                                 "--max-queued-requests",
                                 "--access-log",
                                 "--drain-timeout",
                                 "--print-config",
                                 "--api-key-file",
                                 "--admin-api-key-file",
                                 "--ssl-certfile",
                                 "--ssl-keyfile",
                                 "--ssl-keyfile-password",
                                 "--ssl-ca-certs",
                                 "--allowed-hosts",
                                 "--drain-notice",
                                 "--timeout-keep-alive",
                                 "--max-connections",
                                 "--request-memory-budget",
                                 "--max-stored-responses",
                                 "--response-store-memory",
                                 "--response-store-age",
                                 "--max-images-per-prompt",
                                 "--allow-image-urls",
                                 "--enable-multimodal",
                                 "--plugin",
                                 "--file-storage-path",
                                 "--file-storage-size",
                                 "--speculative-forced-tokens"};
  for (const Documented& flag : documented()) known.insert(flag.words[0].substr(0, flag.words[0].find('=')));
  const Result<CommandLine> line = parse_serve({"serve", "--model-path", kModel});
  for (const FlagValue& value : line->values) EXPECT_TRUE(known.contains(value.flag)) << value.flag;
}

TEST(DocumentedFlags, CudagraphGcWarnsThatItHasNoEffect) {
  for (const char* command : {"serve", "generate", "explain"}) {
    std::vector<std::string> words = {command, "--model-path", kModel, "--enable-cudagraph-gc"};
    if (words[0] == "generate") words.insert(words.end(), {"--prompt", "a"});
    const Result<CommandLine> line = parse_command_line(shared_built_ins(), words);
    ASSERT_TRUE(line.ok()) << command << line.status().message();
    EXPECT_THAT(line->warnings, ElementsAre(StartsWith("--enable-cudagraph-gc has no effect: "))) << command;
  }
}

TEST(DocumentedFlags, SetTheirOptions) {
  const Result<CommandLine> line =
      parse_serve({"serve", "--model-path", kModel, "--cuda-graph-capture=eager", "--cuda-graph-schedule=auto",
                   "--cuda-graph-memory-budget=0.5GiB", "--enable-torch-compile", "--torch-compile-max-bs=8",
                   "--enable-vit-cuda-graph", "--enable-torch-compile-debug-mode", "--cuda-graph-disable-passes", "a,b",
                   "c", "--disable-cost-measurement"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  const GraphOptions& graphs = std::get<ServeOptions>(line->command).engine.graphs;
  EXPECT_EQ(graphs.capture, CaptureMode::kEager);
  EXPECT_EQ(graphs.schedule, PrefillSchedule::kAuto);
  EXPECT_EQ(graphs.memory_budget, std::int64_t{1} << 29);
  EXPECT_TRUE(graphs.torch_compile && graphs.debug && graphs.vit_cuda_graph);
  EXPECT_EQ(graphs.torch_compile_max_batch, 8);
  const auto compiler = [](const std::string& name) {
    const auto with = parse_serve({"serve", "--model-path", kModel, "--piecewise-cuda-graph-compiler", name});
    return std::get<ServeOptions>(with->command).engine.graphs.compiler;
  };
  EXPECT_EQ(compiler("eager"), "eager");
  EXPECT_EQ(compiler("inductor"), "fused");
  EXPECT_FALSE(graphs.measure_costs);
  EXPECT_THAT(graphs.disabled_passes, ElementsAre("a", "b", "c"));
  const GraphOptions plain =
      std::get<ServeOptions>(parse_serve({"serve", "--model-path", kModel})->command).engine.graphs;
  EXPECT_FALSE(plain.capture.has_value() || plain.torch_compile || plain.debug || plain.vit_cuda_graph);
  EXPECT_TRUE(plain.measure_costs);
}

// Values without an effect are refused: a --drain-notice longer than --drain-timeout, and allowed origins and hosts
// that no request can have.
TEST(ServeFlags, RefuseCombinationsWithoutEffect) {
  EXPECT_THAT(parse_serve({"--drain-timeout", "5", "--drain-notice", "6"}).status().message(),
              StartsWith("--drain-notice: 6 is more than --drain-timeout, 5, after which the server ends"));
  EXPECT_THAT(parse_serve({"--drain-notice", "31"}).status().message(), HasSubstr("--drain-timeout, 30"));
  EXPECT_TRUE(parse_serve({"--drain-timeout", "5", "--drain-notice", "5"}).ok());
  EXPECT_THAT(parse_serve({"--cors-allow-origins", "https://app.example/"}).status().message(),
              StartsWith("--cors-allow-origins: \"https://app.example/\" is no origin"));
  EXPECT_THAT(parse_serve({"--allowed-hosts", "llm.example,http://b.example"}).status().message(),
              StartsWith("--allowed-hosts: \"http://b.example\" is no host name"));
  EXPECT_TRUE(parse_serve({"--allowed-hosts", "llm.example,*.b.example:81", "--cors-allow-origins", "null"}).ok());
}

TEST(Switches, CanBeTurnedOffByFalse) {
  const auto radix = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"serve", "--model-path", "m"});
    return std::get<ServeOptions>(parse_command_line(shared_built_ins(), words)->command).engine.disable_radix_cache;
  };
  EXPECT_TRUE(radix({"--disable-radix-cache"}));
  EXPECT_TRUE(radix({"--disable-radix-cache=true"}));
  EXPECT_FALSE(radix({"--disable-radix-cache=false"}));
  EXPECT_TRUE(radix({"--disable-radix-cache=false", "--disable-radix-cache"})) << "the last one counts";
}

class ConfigFlag : public ::testing::Test {
 protected:
  std::string file(const std::string& text) { return folder_.write("c.yaml", text); }
  Result<CommandLine> with_file(const std::string& text, std::vector<std::string> words = {"serve"}) {
    words.insert(words.end(), {"--config", file(text)});
    return parse_command_line(shared_built_ins(), words);
  }
  ServeOptions serve(const std::string& text, std::vector<std::string> words = {"serve"}) {
    const Result<CommandLine> line = with_file(text, std::move(words));
    EXPECT_TRUE(line.ok()) << line.status().message();
    return line.ok() ? std::get<ServeOptions>(line->command) : ServeOptions{};
  }
  tessera::test::ScratchDir folder_;
};

TEST_F(ConfigFlag, SetsWhatTheCommandLineDoesNot) {
  const std::string text =
      "model: m\npage_size: 8\ncuda-graph-bs: [4, 1]\npiecewise-cuda-graph-tokens: '64,8'\nport: 1234\n"
      "disable_radix_cache: true\nlog-requests: false\ncuda-graph-mode: off\nmem-fraction-static: 0.5\n"
      "cuda-graph-memory-budget: 2G\ntp-size: 1\ncors-origin: [http://a, http://b]\n";
  const ServeOptions options = serve(text);
  EXPECT_EQ(options.engine.model_path, "m");
  EXPECT_EQ(options.engine.page_size, 8);
  EXPECT_THAT(options.engine.graphs.decode_batches, ElementsAre(1, 4));
  EXPECT_THAT(options.engine.graphs.piecewise_tokens, ElementsAre(8, 64));
  EXPECT_EQ(options.server.http.port, 1234);
  EXPECT_TRUE(options.engine.disable_radix_cache);
  EXPECT_FALSE(options.server.log_requests);
  EXPECT_EQ(options.engine.graphs.mode, GraphMode::kOff);
  EXPECT_EQ(options.engine.mem_fraction_static, 0.5);
  EXPECT_EQ(options.engine.graphs.memory_budget, std::int64_t{2} << 30);
  EXPECT_THAT(options.server.http.cors_origins, ElementsAre("http://a", "http://b"));

  const ServeOptions mixed = serve(text, {"serve", "--page-size", "32", "--cuda-graph-bs", "2", "--cors-origin",
                                          "http://c", "--disable-radix-cache=false", "--model-path", "other"});
  EXPECT_EQ(mixed.engine.model_path, "other") << "by another spelling, too";
  EXPECT_EQ(mixed.engine.page_size, 32);
  EXPECT_THAT(mixed.engine.graphs.decode_batches, ElementsAre(2)) << "instead of the file's, not beside them";
  EXPECT_THAT(mixed.server.http.cors_origins, ElementsAre("http://c"));
  EXPECT_FALSE(mixed.engine.disable_radix_cache);
  EXPECT_THAT(mixed.engine.graphs.piecewise_tokens, ElementsAre(8, 64));
}

TEST_F(ConfigFlag, WorksForEveryCommandWithAModel) {
  const Result<CommandLine> generate =
      with_file("model: m\nprompt: hello\nmax_new_tokens: 5\nstop: [x]\n", {"generate"});
  ASSERT_TRUE(generate.ok()) << generate.status().message();
  EXPECT_THAT(std::get<GenerateOptions>(generate->command).prompt.texts, ElementsAre("hello"));
  EXPECT_EQ(std::get<GenerateOptions>(generate->command).stop.max_new_tokens, 5);
  const Result<CommandLine> bench = with_file("model: m\nrepeat: 3\nbatch-size: [1, 2]\n", {"bench", "decode"});
  ASSERT_TRUE(bench.ok()) << bench.status().message();
  EXPECT_THAT(std::get<BenchOptions>(bench->command).batch_sizes, ElementsAre(1, 2));
  for (const char* command : {"chat", "explain", "verify"}) EXPECT_TRUE(with_file("model: m\n", {command}).ok());
}

TEST_F(ConfigFlag, WarnsLikeTheCommandLine) {
  const Result<CommandLine> line = with_file("model: m\nenable-piecewise-cuda-graph: true\n");
  EXPECT_THAT(line->warnings, ElementsAre(HasSubstr("deprecated")));
}

TEST_F(ConfigFlag, ErrorsNameFileLineAndFlag) {
  const auto error = [&](const std::string& text,
                         const std::vector<std::string>& words = {"serve", "--model-path", "m"}) {
    return with_file(text, words).status().message();
  };
  const std::string place = folder_.path() + "/c.yaml:";
  EXPECT_THAT(error("page-size: 16\npage-sise: 8\n"),
              StartsWith(place + "2: unknown flag --page-sise of serve; did you mean --page-size"));
  EXPECT_THAT(error("quantization: fp9\n"), StartsWith(place + "1: --quantization: \"fp9\" is not accepted"));
  EXPECT_THAT(error("pp-size: 65\n"), StartsWith(place + "1: --pp-size: \"65\" is not accepted"));
  EXPECT_THAT(error("tp: 65\n"), StartsWith(place + "1: --tp-size: \"65\" is not accepted"));
  EXPECT_EQ(error("page-size: 8\nport: 1\npage_size: 8\n"), place + "3: page_size: " + place + "1 has it already");
  EXPECT_THAT(error("model: a\nmodel-path: b\n"), StartsWith(place + "2: model-path: "));
  EXPECT_THAT(error("page-size: big\n"),
              StartsWith(place + "1: page-size: \"big\" is not accepted; a whole number is"));
  EXPECT_THAT(error("\npage-size: 2000\n"), StartsWith(place + "2: --page-size: \"2000\" is not accepted"));
  EXPECT_THAT(error("disable-cuda-graph: 1\n"), StartsWith(place + "1: disable-cuda-graph: 1 is not accepted"));
  EXPECT_THAT(error("cuda-graph-mode: fast\n"), StartsWith(place + "1: --cuda-graph-mode: \"fast\""));
  EXPECT_THAT(error("config: other.yaml\n"),
              StartsWith(place + "1: --config: a configuration file cannot name another"));
  EXPECT_THAT(error("prompt: x\n"), StartsWith(place + "1: unknown flag --prompt of serve"));
  EXPECT_THAT(error("prefill: {max: 1}\n"), HasSubstr(place + "1: prefill holds a map"));
  EXPECT_THAT(error(""), AllOf(StartsWith("--config: "), HasSubstr("the file is empty")));
  // The file's value is overridden by the command line, but its type is checked nevertheless.
  EXPECT_THAT(error("page-size: big\n", {"serve", "--model-path", "m", "--page-size", "4"}), StartsWith(place + "1"));
  EXPECT_THAT(error("port: 1\n", {"serve"}), StartsWith("--model-path is missing; accepted: a model folder"));
  EXPECT_THAT(parse_command_line(shared_built_ins(), {"serve", "--config", "/no/file"}).status().message(),
              AllOf(StartsWith("--config: "), HasSubstr("/no/file")));
  EXPECT_THAT(parse_command_line(shared_built_ins(), {"serve", "--config="}).status().message(),
              "--config: the value is empty");
}

TEST_F(ConfigFlag, TheEffectiveConfigurationReproducesItself) {
  const Result<CommandLine> line =
      with_file("page-size: 8\ncuda-graph-bs: [1, 2]\n",
                {"serve", "--model-path", kModel, "--max-running-requests", "2", "--chunked-prefill-size", "64",
                 "--cuda-graph-mode", "off", "--cors-origin", "http://x", "--cuda-graph-memory-budget", "1G",
                 "--speculative-algorithm", "SUFFIX"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  testing::DescribedDevice device({.name = "test", .memory_bytes = std::int64_t{8} << 30, .threads = 2});
  const EnginePlan plan = *plan_engine(std::get<ServeOptions>(line->command).engine, device);
  const Json config = effective_config(line->values, &plan);
  const auto value = [&](const char* key) { return *config.find(key); };
  const auto source = [&](const char* key) { return config.find("sources")->find(key)->as_string(); };
  EXPECT_EQ(value("page-size"), Json(8));
  EXPECT_EQ(source("page-size"), "file");
  EXPECT_EQ(value("max-running-requests"), Json(2)) << "drafts do not count";
  EXPECT_EQ(source("max-running-requests"), "command line");
  EXPECT_EQ(value("dtype"), Json("float32"));
  EXPECT_EQ(source("dtype"), "engine");
  EXPECT_EQ(value("port"), Json(30000));
  EXPECT_EQ(source("port"), "default");
  EXPECT_EQ(value("disable-piecewise-cuda-graph"), Json(true)) << "a rule's doing";
  EXPECT_EQ(source("disable-piecewise-cuda-graph"), "engine");
  EXPECT_EQ(value("api-key"), Json());
  EXPECT_EQ(config.find("config"), nullptr);
  EXPECT_EQ(config.as_object().size(), line->values.size()) << "sources instead of --print-config";

  const Result<CommandLine> again = with_file(config.dump(2));
  ASSERT_TRUE(again.ok()) << again.status().message();
  const EnginePlan same = *plan_engine(std::get<ServeOptions>(again->command).engine, device);
  const Json second = effective_config(again->values, &same);
  for (const auto& [key, first] : config.as_object()) {
    EXPECT_TRUE(key == "sources" || *second.find(key) == first) << key << ": " << first.dump();
  }
  EXPECT_EQ(same.runner.num_pages, plan.runner.num_pages);
  EXPECT_EQ(same.runner.prefill_sizes, plan.runner.prefill_sizes);
}

TEST_F(ConfigFlag, EveryCommandsConfigurationIsAccepted) {
  const std::vector<std::vector<std::string>> commands = {
      {"serve"},
      {"generate", "--prompt", "x", "--stop", "1", "--top-p", "0.5"},
      {"generate", "--input-file", "f", "--output-file", "o"},
      {"chat", "--system", "s"},
      {"score", "--input-ids", "1,2", "--input-ids", "3", "--output", "o"},
      {"explain", "--num-tokens", "3"},
      {"verify"},
      {"bench", "prefill", "--num-tokens", "8"},
      {"bench", "decode", "--context", "9"},
      {"bench", "decode", "--adapters", "2"},
      {"bench", "serve", "--request-rate", "2,inf", "--graphs", "off,on"}};
  for (std::vector<std::string> words : commands) {
    const std::size_t of_command = words[0] == "bench" ? 2 : 1;
    std::vector<std::string> bare(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(of_command));
    words.insert(words.end(), {"--model-path", kModel});
    const Result<CommandLine> line = parse_command_line(shared_built_ins(), words);
    ASSERT_TRUE(line.ok()) << line.status().message();
    const Json config = effective_config(line->values, nullptr);
    const Result<CommandLine> again = with_file(config.dump(), bare);
    ASSERT_TRUE(again.ok()) << words[0] << ": " << again.status().message();
    const Json second = effective_config(again->values, nullptr);
    for (const auto& [key, first] : config.as_object()) {
      EXPECT_TRUE(key == "sources" || *second.find(key) == first) << words[0] << " " << key << ": " << first.dump();
    }
  }
}

}  // namespace
}  // namespace tessera::cli
