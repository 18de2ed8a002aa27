// Catches: a failed start that does not say what helps, or proposes what is already set; a report that lacks a needed
// fact, reveals a secret or overwrites another report; and an unwritable report that hides the original error.
#include "tessera/cli/session/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "tessera/cli/parse.h"
#include "tessera/device/testing/environment.h"
#include "tessera/device/testing/fake_device.h"
#include "tessera/engine/engine.h"
#include "tessera/runner/capture/graph_failure.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class FailureReport : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("failure_report_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override {
    std::error_code ignored;
    fs::permissions(folder_, fs::perms::owner_all, ignored);
    fs::remove_all(folder_);
  }
  std::string folder() const { return folder_.string(); }

 private:
  fs::path folder_;
};

const Status kFailure = resource_exhausted("no room for 5 bytes").with_context(kCaptureContext);
const std::vector<std::string> kArguments = {
    "serve", "--model-path", testing::source_path("models/demo"), "--cuda-graph-max-bs", "8", "--api-key", "a secret"};

CommandLine parsed(const std::vector<std::string>& arguments, const std::string& cache_dir) {
  Result<CommandLine> line = parse_command_line(shared_built_ins(), arguments);
  EXPECT_TRUE(line.ok()) << line.status().message();
  if (!line.ok()) return {};
  std::get<ServeOptions>(line->command).engine.cache_dir = cache_dir;
  return *std::move(line);
}

TEST_F(FailureReport, SaysWhatHelpsAndKeepsAReport) {
  const std::string said = explain_failure(kFailure, parsed(kArguments, folder()), kArguments);
  EXPECT_THAT(said, AllOf(HasSubstr("--disable-piecewise-cuda-graph"), HasSubstr("--mem-fraction-static 0.8 (0.7)"),
                          HasSubstr("--piecewise-cuda-graph-max-tokens 2048 (1024, 512)"),
                          HasSubstr("--piecewise-cuda-graph-tokens"), HasSubstr("--cuda-graph-max-bs 16"),
                          HasSubstr("--disable-cuda-graph"), Not(HasSubstr("--enable-torch-compile")),
                          HasSubstr("by 0.01 to 0.05"), HasSubstr("CONTRIBUTING.md"),
                          ::testing::ContainsRegex("Free now on .+: [0-9.,]+ [KMGT]iB of [0-9.,]+ [KMGT]iB\\.\n")));
  const std::string_view begins = "A report of this start: ";
  const std::size_t at = said.find(begins);
  ASSERT_NE(at, std::string::npos) << said;
  const std::string path = said.substr(at + begins.size(), said.find('\n', at) - at - begins.size());
  EXPECT_TRUE(path.starts_with(folder())) << path;
  const Result<std::string> text = read_text_file(path);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_THAT(*text, Not(HasSubstr("a secret")));
  EXPECT_EQ(fs::status(path).permissions() & fs::perms::others_all, fs::perms::none);
  const Result<Json> report = Json::parse(*text, "report");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->find("error")->find("message")->as_string(), "capturing graphs: no room for 5 bytes");
  EXPECT_EQ(report->find("error")->find("code")->as_string(), "resource exhausted");
  EXPECT_EQ(report->find("command")->as_array()[5].as_string(), "8");
  EXPECT_FALSE(report->find("device")->find("name")->as_string().empty());
  EXPECT_EQ(report->find("configuration")->find("cuda-graph-max-bs")->as_int(), 8);
  const Json& plan = *report->find("plan");
  EXPECT_FALSE(plan.find("model")->find("dtype")->as_string().empty());
  EXPECT_FALSE(plan.find("rules")->as_array().empty());
  EXPECT_TRUE(plan.find("notes")->is_array());
  EXPECT_FALSE(plan.find("runners")->find("prefill")->find("sizes")->as_array().empty());
}

TEST_F(FailureReport, OtherErrorsAndCommandsAddNothing) {
  const CommandLine serve = parsed(kArguments, folder());
  EXPECT_THAT(explain_failure(resource_exhausted("the port is taken"), serve, kArguments), IsEmpty());
  EXPECT_THAT(explain_failure(kFailure, {.command = ShowText{}}, {}), IsEmpty());
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_THAT(explain_failure(internal_error("x").with_context(kCompileContext), serve, kArguments),
              HasSubstr("report"));
}

TEST_F(FailureReport, ProposesNoFlagThatIsSet) {
  EngineOptions options;
  options.graphs.disable_piecewise_cuda_graph = true;
  options.graphs.torch_compile = true;
  EXPECT_THAT(failure_advice(options), AllOf(Not(HasSubstr("piecewise")), HasSubstr("no --enable-torch-compile"),
                                             HasSubstr("--disable-cuda-graph")));
  options.graphs.disable_cuda_graph = true;
  EXPECT_THAT(failure_advice(options),
              AllOf(Not(HasSubstr("cuda-graph")), HasSubstr("--chunked-prefill-size"), HasSubstr("0.8")));
}

TEST_F(FailureReport, ARefusalGetsNoAdviceToSaveMemory) {
  const std::string said = explain_failure(unimplemented("my_silu: bfloat16 only").with_context(kCaptureContext),
                                           parsed(kArguments, folder()), kArguments);
  EXPECT_THAT(said, AllOf(HasSubstr("--disable-cuda-graph"), HasSubstr("report")));
  EXPECT_THAT(said, AllOf(Not(HasSubstr("--mem-fraction-static")), Not(HasSubstr("max-tokens")),
                          Not(HasSubstr("--cuda-graph-max-bs")), Not(HasSubstr("Free now"))));
  EngineOptions options;
  options.graphs.mode = GraphMode::kOff;
  EXPECT_THAT(failure_advice(options, /*of_memory=*/false), IsEmpty());
}

TEST_F(FailureReport, ProposesALowerShareOfMemoryThanGiven) {
  EngineOptions options;
  options.mem_fraction_static = 0.9;
  EXPECT_THAT(failure_advice(options),
              AllOf(HasSubstr("--mem-fraction-static 0.89 (0.85) "), Not(HasSubstr("--mem-fraction-static 0.8 "))));
  options.mem_fraction_static = 0.12;
  EXPECT_THAT(failure_advice(options), HasSubstr("--mem-fraction-static 0.11 (0.1) ")) << "what the flag accepts";
}

TEST_F(FailureReport, AnUnwritableReportStillGivesTheAdvice) {
  // There is a file at the folder's path, so that not even the superuser can write there.
  const std::string file = folder();
  { const std::unique_ptr<FILE, int (*)(FILE*)> made(std::fopen(file.c_str(), "w"), std::fclose); }
  const std::string said = explain_failure(kFailure, parsed(kArguments, file), kArguments);
  EXPECT_THAT(said, AllOf(HasSubstr("--mem-fraction-static"), HasSubstr("No report could be kept: "), HasSubstr(file)));
}

TEST_F(FailureReport, TheReportNamesAnUnreadableModel) {
  const std::vector<std::string> arguments = {"serve", "--model-path", folder() + "/none"};
  const Json report = failure_report(kFailure, parsed(arguments, folder()), arguments);
  ASSERT_TRUE(report.find("plan")->is_string());
  EXPECT_THAT(report.find("plan")->as_string(), HasSubstr("/none"));
  EXPECT_EQ(report.find("command")->as_array().size(), 4U);
}

TEST_F(FailureReport, TheKeyIsLeftOutInBothSpellings) {
  const std::vector<std::string> arguments = {"serve", "--model-path", "m", "--api-key=a secret"};
  EXPECT_THAT(failure_report(kFailure, parsed(arguments, folder()), arguments).dump(), Not(HasSubstr("a secret")));
}

TEST_F(FailureReport, AStartWithoutGraphsGivesTheAdvice) {
  EngineOptions options{.model_path = testing::source_path("models/demo")};
  options.context_length = 128;
  options.max_total_tokens = 512;
  options.graphs.piecewise_tokens = {16, 64};
  for (const bool fails : {true, false}) {
    auto device = FakeDevice::create({.records_nothing = fails}, {.threads = 1});
    ASSERT_TRUE(device.ok());
    const Result<std::unique_ptr<Engine>> engine = Engine::create(options, *std::move(device));
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    const std::string said = explain_dropped_sizes(*(*engine)->stats().graphs, options);
    if (fails) {
      EXPECT_THAT(said, AllOf(HasSubstr("No prefill graph could be captured"), HasSubstr("all 2 sizes failed, 64 with"),
                              HasSubstr("No decode graph could be captured"), HasSubstr("--mem-fraction-static 0.8"),
                              HasSubstr("--disable-piecewise-cuda-graph")));
    } else {
      EXPECT_THAT(said, IsEmpty());
    }
  }
}

}  // namespace
}  // namespace tessera::cli
