// Catches: a graph that is missing from the export, has the wrong name, or has the text of another graph; a compiler
// pass that is exported with equal graphs before and after it; equal models that are exported to different folders, or
// different models that share a folder; and an unwritable folder that is not reported.
#include "tessera/engine/plan/graph_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"
#include "tessera/ir/text.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

namespace fs = std::filesystem;

EngineOptions options_of(const std::string& golden) {
  static const std::shared_ptr<const Registry> registry = shared_built_ins();  // outlives the graphs
  EngineOptions options{.registry = registry};
  options.model_path = testing::data_path("goldens/" + golden);
  options.load_format = LoadFormat::kDummy;
  options.context_length = 64;
  options.max_total_tokens = 256;
  options.graphs.piecewise_tokens = {8};
  options.graphs.decode_batches = {1};
  return options;
}

std::vector<NamedGraph> graphs_of_options(const EngineOptions& options) {
  const auto device = CpuDevice::create({.threads = 1}).value();
  const Result<EnginePlan> plan = plan_engine(options, *device);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  Result<std::vector<NamedGraph>> graphs = graphs_of(*plan, options.graphs.disabled_passes);
  EXPECT_TRUE(graphs.ok()) << graphs.status().to_string();
  return *std::move(graphs);
}

const NamedGraph& named(const std::vector<NamedGraph>& graphs, std::string_view name) {
  const auto found = find_graphs(graphs, name);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_THAT(*found, SizeIs(1));
  return *found->front();
}

std::string content(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};
using GraphExport = FolderTest;

TEST_F(GraphExport, HasEveryGraphOfThePlan) {
  const std::vector<NamedGraph> graphs = graphs_of_options(options_of("llama"));
  for (const char* name : {"body", "head", "prefill", "prefill_head", "sampler", "choose", "logprobs", "decode"}) {
    const NamedGraph& graph = named(graphs, name);
    const Result<ir::Graph> parsed = ir::parse_graph(graph.text, &built_in_ops());
    ASSERT_TRUE(parsed.ok()) << name << parsed.status().to_string();
    EXPECT_TRUE(ir::structurally_equal(*parsed, graph.graph)) << name;
  }
  const std::size_t sum = named(graphs, "body").graph.nodes.size() + named(graphs, "head").graph.nodes.size() +
                          named(graphs, "sampler").graph.nodes.size();
  EXPECT_EQ(named(graphs, "decode").graph.nodes.size(), sum);

  // 3 layers make 3 pieces, each followed by its attention. The head has the operators after the last attention.
  const NamedGraph& stitched = named(graphs, "stitched");
  EXPECT_THAT(stitched.text, HasSubstr("3 pieces, 3 split ops"));
  EXPECT_THAT(stitched.picture.clusters, SizeIs(6));
  EXPECT_EQ(stitched.picture.cluster_of_node.size(), stitched.graph.nodes.size());
  std::size_t nodes = 0;
  for (const char* part : {"0", "1", "2", "3", "4", "5"}) nodes += named(graphs, part).graph.nodes.size();
  EXPECT_EQ(nodes, stitched.graph.nodes.size());
  EXPECT_EQ(named(graphs, "3").graph.nodes.at(0).op, "attention");
}

TEST_F(GraphExport, HasTheGraphsOfALayerThatDrafts) {
  EngineOptions options = options_of("llama");
  options.drafts.source = DraftSource::kEagle;
  options.drafts.model_path = testing::data_path("drafts/llama-eagle3");
  const std::vector<NamedGraph> graphs = graphs_of_options(options);
  EXPECT_NE(named(graphs, "draft").graph.find_value("draft_hidden"), nullptr);
  EXPECT_THAT(named(graphs, "draft_head").text, HasSubstr("sampled_ids"));
  EXPECT_THAT(named(graphs, "draft_decode").text, AllOf(HasSubstr("draft_hidden"), HasSubstr("sampled_ids")));
}

TEST_F(GraphExport, ATowerIsThereWhereTheModelHasOne) {
  EngineOptions seeing = options_of("llama");
  seeing.model_path = testing::data_path("goldens/qwen3-vl");
  const std::vector<NamedGraph> graphs = graphs_of_options(seeing);
  const NamedGraph& tower = named(graphs, "tower");
  EXPECT_THAT(tower.text, HasSubstr("segment_attention"));
  const Result<ir::Graph> parsed = ir::parse_graph(tower.text, &built_in_ops());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_TRUE(ir::structurally_equal(*parsed, tower.graph));
  EXPECT_FALSE(find_graphs(graphs_of_options(options_of("llama")), "tower").ok());
}

TEST_F(GraphExport, ChangingPassesHaveABeforeAndAnAfter) {
  // Nothing reads %dead, and %copied is a copy of %x that nothing writes.
  const ir::Graph graph = *ir::parse_graph(R"(graph @waste {
    input %x: f32[T, 8]
    %dead: f32[T, 8] = scale(%x) {factor = 2.0}
    %copied: f32[T, 8] = copy(%x)
    %y: f32[T, 8] = add(%copied, %x)
    return %y
  })",
                                           &built_in_ops());
  const auto change = [&](const std::vector<NamedGraph>& graphs, const std::string& pass) {
    const std::string before = named(graphs, "pass:" + pass + ":waste:before").text;
    const std::string after = named(graphs, "pass:" + pass + ":waste:after").text;
    const auto both = find_graphs(graphs, "pass:" + pass);
    EXPECT_TRUE(both.ok() && both->size() == 2 && both->front()->text == before) << pass;
    return std::pair(before, after);
  };
  const std::vector<NamedGraph> graphs = *graphs_of_passes(graph, "waste", built_in_ops(), {});
  const auto [with_copy, without_copy] = change(graphs, "remove_copies");
  EXPECT_THAT(with_copy, HasSubstr("= copy("));
  EXPECT_THAT(without_copy, Not(HasSubstr("= copy(")));
  const auto [with_dead, without_dead] = change(graphs, "remove_dead_code");
  EXPECT_THAT(with_dead, HasSubstr("%dead"));
  EXPECT_THAT(without_dead, Not(HasSubstr("%dead")));
  EXPECT_THAT(graphs, SizeIs(4)) << "of passes that change nothing there is nothing to see";
  EXPECT_THAT(find_graphs(graphs, "pass:fold_constants").status().message(),
              HasSubstr("the pass fold_constants changes no graph"));

  const std::vector<std::string> disabled = {"remove_copies"};
  EXPECT_THAT(*graphs_of_passes(graph, "waste", built_in_ops(), disabled), SizeIs(2));
}

TEST_F(GraphExport, AnUnknownNameListsTheKnownOnes) {
  const std::vector<NamedGraph> graphs = graphs_of_options(options_of("llama"));
  for (const char* name : {"tail", "7", "", "pass:", "pass:none", "bod"}) {
    const Status status = find_graphs(graphs, name).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(std::string("\"") + name + "\""), HasSubstr("body, head, sampler"),
                                        HasSubstr("stitched"), HasSubstr("pass:remove_copies"), HasSubstr("0 to 5")));
  }
}

TEST_F(GraphExport, WritesThreeFilesOfEach) {
  const std::vector<NamedGraph> graphs = graphs_of_options(options_of("qwen2"));
  ASSERT_TRUE(export_graphs(graphs, (folder_ / "a" / "b").string()).ok());
  const auto files = std::distance(fs::directory_iterator(folder_ / "a" / "b"), fs::directory_iterator());
  EXPECT_EQ(static_cast<std::size_t>(files), 3 * graphs.size());
  EXPECT_EQ(content(folder_ / "a" / "b" / "body.txt"), named(graphs, "body").text);
  EXPECT_THAT(content(folder_ / "a" / "b" / "stitched.dot"), AllOf(StartsWith("digraph"), HasSubstr("piece 0")));
  EXPECT_THAT(content(folder_ / "a" / "b" / "part.01.svg"), AllOf(HasSubstr("<svg"), HasSubstr("attention")));
  ASSERT_TRUE(export_graphs(graphs, (folder_ / "a" / "b").string()).ok()) << "over those that are there";

  std::ofstream(folder_ / "file") << "x";
  EXPECT_THAT(export_graphs(graphs, (folder_ / "file" / "c").string()).message(), HasSubstr("cannot be made"));
  fs::create_directories(folder_ / "d" / "body.txt");
  EXPECT_THAT(export_graphs(graphs, (folder_ / "d").string()).message(),
              AllOf(HasSubstr("body.txt"), HasSubstr("directory")));
}

TEST_F(GraphExport, DebugModeWritesThemAtTheStart) {
  EngineOptions options = options_of("llama");
  options.graphs.debug = true;
  options.cache_dir = folder_.string();
  EXPECT_TRUE(Engine::create(options).ok());
  const std::string first = debug_export_folder(options, graphs_of_options(options));
  EXPECT_THAT(first, StartsWith((folder_ / "torch_compile_cache" / "llama-").string()));
  EXPECT_TRUE(fs::exists(fs::path(first) / "decode.svg"));
  EngineOptions other = options;
  other.model_path += "/";
  EXPECT_EQ(debug_export_folder(other, graphs_of_options(other)), first);
  other.graphs.split_ops = {"linear"};
  EXPECT_NE(debug_export_folder(other, graphs_of_options(other)), first);

  // A folder that cannot be written must not stop the start.
  options.cache_dir = (folder_ / "file").string();
  std::ofstream(options.cache_dir) << "x";
  EXPECT_TRUE(Engine::create(options).ok());
}

}  // namespace
}  // namespace tessera
