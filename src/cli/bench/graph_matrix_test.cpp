// Catches: flags that switch the wrong graphs on or off; an automatic rule that wrongly overrides a flag; a flag that
// wrongly overrides an automatic rule; and contradictory flags that are accepted without a warning. The test covers the
// whole way from the command line to the engine's decision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/cli/parse.h"
#include "tessera/device/testing/described_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/plan/engine_plan.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Row {
  std::vector<std::string> flags;
  bool decode;
  bool prefill;
  std::vector<std::string> rules;     // the end of each expected message
  std::vector<std::string> warnings;  // a part of each expected warning
};

const char* kBegin = "Disable piecewise CUDA graph because ";
const char* kDisabled = "disable_cuda_graph is set";
const char* kPiecewiseDisabled = "disable_piecewise_cuda_graph is set";
const char* kOff = "cuda_graph_mode is off";

TEST(GraphMatrix, EveryRowGivesItsGraphs) {
  const std::vector<Row> rows = {
      {{}, true, true, {}, {}},
      {{"--disable-cuda-graph"}, false, false, {kDisabled}, {}},
      {{"--disable-piecewise-cuda-graph"}, true, false, {kPiecewiseDisabled}, {}},
      // This flag selects a compiler for decode batches and leaves prefill graphs unchanged.
      {{"--enable-torch-compile"}, true, true, {}, {}},
      {{"--enable-torch-compile", "--torch-compile-max-bs", "16"}, true, true, {}, {}},
      {{"--torch-compile-max-bs", "16"}, true, true, {}, {"no effect without --enable-torch-compile"}},
      {{"--piecewise-cuda-graph-compiler", "inductor"}, true, true, {}, {}},
      // --enforce-piecewise-cuda-graph overrides automatic rules, but not the user's other flags.
      {{"--enforce-piecewise-cuda-graph"}, true, true, {}, {}},
      {{"--enforce-piecewise-cuda-graph", "--enable-torch-compile"}, true, true, {}, {}},
      {{"--enforce-piecewise-cuda-graph", "--disable-cuda-graph"}, false, false, {kDisabled}, {"overruled"}},
      {{"--enforce-piecewise-cuda-graph", "--disable-piecewise-cuda-graph"},
       true,
       false,
       {kPiecewiseDisabled},
       {"--enforce-piecewise-cuda-graph is overruled"}},
      // If the flags both enable and disable graphs, the graphs are disabled, and one warning says so.
      {{"--enable-piecewise-cuda-graph"}, true, true, {}, {"deprecated"}},
      {{"--enable-piecewise-cuda-graph", "--disable-piecewise-cuda-graph"},
       true,
       false,
       {kPiecewiseDisabled},
       {"--enable-piecewise-cuda-graph is overruled"}},
      {{"--enable-piecewise-cuda-graph", "--disable-cuda-graph"}, false, false, {kDisabled}, {"overruled"}},
      {{"--disable-cuda-graph", "--disable-piecewise-cuda-graph"}, false, false, {kDisabled, kPiecewiseDisabled}, {}},
      // The mode selects the graphs. Flags that disable graphs override it.
      {{"--cuda-graph-mode", "off"}, false, false, {kOff}, {}},
      {{"--cuda-graph-mode", "piecewise"}, false, true, {}, {}},
      {{"--cuda-graph-mode", "full"}, true, true, {}, {}},
      {{"--cuda-graph-mode", "full_and_piecewise"}, true, true, {}, {}},
      {{"--cuda-graph-mode", "full", "--disable-cuda-graph"}, false, false, {kDisabled}, {}},
      {{"--cuda-graph-mode", "piecewise", "--disable-piecewise-cuda-graph"}, false, false, {kPiecewiseDisabled}, {}},
      {{"--cuda-graph-mode", "full_and_piecewise", "--enable-torch-compile"}, true, true, {}, {}},
      // SGLang would switch piecewise graphs off here.
      {{"--pp-size", "2"}, true, true, {}, {}},
  };
  for (const Row& row : rows) {
    std::vector<std::string> words = {"serve", "--model-path", testing::data_path("goldens/llama")};
    words.insert(words.end(), row.flags.begin(), row.flags.end());
    const Result<CommandLine> line = parse_command_line(shared_built_ins(), words);
    ASSERT_TRUE(line.ok()) << line.status().message();
    const std::string what = ::testing::PrintToString(row.flags);
    ASSERT_EQ(line->warnings.size(), row.warnings.size()) << what;
    for (std::size_t i = 0; i < row.warnings.size(); ++i) EXPECT_THAT(line->warnings[i], HasSubstr(row.warnings[i]));
    testing::DescribedDevice device({.name = "test", .memory_bytes = std::int64_t{8} << 30, .threads = 2});
    const Result<EnginePlan> plan = plan_engine(std::get<ServeOptions>(line->command).engine, device);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->runner.graphs.decode, row.decode) << what;
    EXPECT_EQ(plan->runner.graphs.prefill, row.prefill) << what;
    std::vector<std::string> messages;
    for (const std::string& rule : row.rules) messages.push_back(kBegin + rule);
    EXPECT_EQ(plan->runner.graphs.messages, messages) << what;
  }
}

}  // namespace
}  // namespace tessera::cli
