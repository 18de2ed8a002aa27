// Catches: passes that change the results of graphs that no other test covers. The tests run random graphs before and
// after each pass, and the outputs and states must be the same. The graphs contain many copies, views, duplicated
// nodes, writes, and sequences of nodes that a pass fuses into one operator.
#include <gtest/gtest.h>

#include "tessera/compile/eager.h"
#include "tessera/compile/pass.h"
#include "tessera/compile/random_graph_test_util.h"

namespace tessera {
namespace {

using testing::RandomGraph;
using testing::RandomGraphRunner;

TEST(RandomGraphs, EveryPassKeepsTheirResults) {
  RandomGraphRunner runner;
  const auto computed = [&](const ir::Graph& graph) {
    return runner.run(graph, eager_program(graph, built_in_ops(), cpu_kernels()));
  };
  std::vector<int> changes(pass_list().size() + 1, 0);
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Result<ir::Graph> graph = RandomGraph(seed).make(4 + static_cast<int>(seed % 20));
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const auto before = computed(*graph);
    for (std::size_t i = 0; i <= pass_list().size(); ++i) {
      const auto passes = i < pass_list().size() ? pass_list().subspan(i, 1) : pass_list();
      const Result<PassRun> run = run_passes(*graph, built_in_ops(), {}, passes);
      ASSERT_TRUE(run.ok()) << "seed " << seed << ": " << run.status().to_string() << "\n" << ir::to_text(*graph);
      if (ir::structurally_equal(run->graph, *graph)) continue;
      ++changes[i];
      ASSERT_TRUE(testing::close(before, computed(run->graph)))
          << "seed " << seed << ", " << (passes.size() > 1 ? "all passes" : passes[0].name) << "\n"
          << ir::to_text(*graph) << "\nbecame\n"
          << ir::to_text(run->graph);
    }
  }
  for (std::size_t i = 0; i < changes.size(); ++i) EXPECT_GT(changes[i], 40) << "pass " << i << " had nothing to do";
}

}  // namespace
}  // namespace tessera
