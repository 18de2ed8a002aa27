// Catches: passes that run in the wrong order, or run although they are switched off; a broken result that is accepted;
// errors that name no pass; reports that do not add up; a hash that does not change with the passes.
#include "tessera/compile/pass.h"

#include <gmock/gmock.h>

#include <array>
#include <set>

#include "tessera/compile/passes/pass_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::graph;
using ::testing::HasSubstr;
using testing::parse_statements;

PassResult do_nothing(const ir::Graph&, const ir::OpTable&) { return unchanged(); }
PassResult give_up(const ir::Graph&, const ir::OpTable&) { return internal_error("no way"); }
PassResult drop_the_first_node(const ir::Graph& graph, const ir::OpTable&) {
  ir::Graph changed = graph;
  changed.nodes.erase(changed.nodes.begin());
  return changed;
}
PassResult silu_to_gelu(const ir::Graph& graph, const ir::OpTable&) {
  ir::Graph changed = graph;
  for (ir::Node& node : changed.nodes)
    if (node.op == "silu") node.op = "gelu";
  return changed;
}

const std::array kTwo = {Pass{.name = "nothing", .summary = "", .run = do_nothing},
                         Pass{.name = "gelu", .summary = "", .run = silu_to_gelu}};

TEST(RunPasses, ReportsAndObserverShowEveryPass) {
  std::vector<std::string> seen;
  const PassOptions options{.observer = [&](std::string_view pass, const ir::Graph& before, const ir::Graph& after) {
    seen.push_back(std::string(pass) + ": " + before.nodes[0].op + " -> " + after.nodes[0].op);
  }};
  const Result<PassRun> run =
      run_passes(parse_statements("%y = silu(%x) %z = silu(%y) return %z"), built_in_ops(), options, kTwo);
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  EXPECT_EQ(ir::to_text(run->graph), graph("%y = gelu(%x) %z = gelu(%y) return %z"));
  EXPECT_THAT(seen, ElementsAre("nothing: silu -> silu", "gelu: silu -> gelu"));
  ASSERT_EQ(run->reports.size(), 2u);
  EXPECT_EQ(run->reports[0].pass, "nothing");
  EXPECT_FALSE(run->reports[0].changed);
  EXPECT_EQ(run->reports[1].pass, "gelu");
  EXPECT_TRUE(run->reports[1].changed);
  for (const PassReport& report : run->reports) {
    EXPECT_EQ(report.graph, "g");
    EXPECT_EQ(report.nodes_before, 2);
    EXPECT_EQ(report.nodes_after, 2);
    EXPECT_GE(report.ms, 0);
  }
}

TEST(RunPasses, ADisabledPassDoesNotRun) {
  const Result<PassRun> run =
      run_passes(parse_statements("%y = silu(%x) return %y"), built_in_ops(), {.disabled = {"gelu"}}, kTwo);
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  EXPECT_EQ(run->graph.nodes[0].op, "silu");
  ASSERT_EQ(run->reports.size(), 1u);
  EXPECT_EQ(run->reports[0].pass, "nothing");
}

TEST(RunPasses, AnUnknownNameIsAnErrorListingKnownOnes) {
  const ir::Graph any = parse_statements("return");
  const Status status = run_passes(any, built_in_ops(), {.disabled = {"remove_copys"}}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\"remove_copys\""), HasSubstr("did you mean remove_copies?"),
                                      HasSubstr("fold_constants, remove_copies, merge_common_subexpressions, "
                                                "remove_dead_code, fuse_native_forms")));
  EXPECT_FALSE(check_pass_names(std::vector<std::string>{""}).ok());
  EXPECT_FALSE(passes_hash({.disabled = {"x"}}).ok());
  for (const Pass& pass : pass_list()) EXPECT_TRUE(check_pass_names(std::vector{std::string(pass.name)}).ok());
}

TEST(RunPasses, ErrorsNamePassAndGraph) {
  const ir::Graph some = parse_statements("%y = silu(%x) %z = silu(%y) return %z");
  const Pass fails{.name = "fails", .summary = "", .run = give_up};
  EXPECT_EQ(run_passes(some, built_in_ops(), {}, {&fails, 1}).status().message(), "pass fails on graph 'g': no way");
  const Pass breaks{.name = "breaks", .summary = "", .run = drop_the_first_node};
  EXPECT_THAT(
      run_passes(some, built_in_ops(), {}, {&breaks, 1}).status().message(),
      AllOf(HasSubstr("pass breaks on graph 'g'"), HasSubstr("its result is broken"), HasSubstr("node 0 (silu)")));
}

TEST(RunPasses, ABrokenInputGraphIsNoPasssFault) {
  ir::Graph broken = parse_statements("%y = silu(%x) return %y");
  broken.values.back().producer = ir::kNoNode;
  EXPECT_THAT(run_passes(broken, built_in_ops(), {}, kTwo).status().message(), HasSubstr("before the passes"));
}

TEST(PassList, NamesAreDistinctAndEveryPassIsDescribed) {
  std::set<std::string_view> names;
  for (const Pass& pass : pass_list()) {
    EXPECT_TRUE(names.insert(pass.name).second) << pass.name;
    EXPECT_FALSE(pass.summary.empty()) << pass.name;
    EXPECT_GE(pass.version, 1) << pass.name;
  }
}

// Every pass finds something to change in this graph, partly because of what the passes before it have changed.
TEST(PassList, ThePassesWorkTogether) {
  const ir::Graph before = parse_statements(R"(
      %f = cast(%h) {dtype = "f32"}
      %b = cast(%f) {dtype = "bf16"}
      %c = copy(%x)
      %s1 = add(%c, %r)
      %s2 = add(%r, %x)
      %n = rms_norm(%s2, %w) {eps = 1e-05}
      %g = silu(%s1)
      return %n, %g, %b)");
  // %b becomes a cast of the input %h to the type that %h already has. This cast stays, because an output may not share
  // memory with an input. The cast %f is removed, because nothing reads it any more.
  const Result<PassRun> run = run_passes(before, built_in_ops());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  EXPECT_EQ(ir::to_text(run->graph), graph(R"(
      %b = cast(%h) {dtype = "bf16"}
      %n, %s1 = add_rms_norm(%x, %r, %w) {eps = 1e-05}
      %g = silu(%s1)
      return %n, %g, %b)"));
  for (const PassReport& report : run->reports) EXPECT_TRUE(report.changed) << report.pass;
}

TEST(PassesHash, DependsOnThePassesThatRun) {
  const Hash128 all = *passes_hash();
  EXPECT_EQ(all, *passes_hash());
  std::set<Hash128> different{all};
  for (const Pass& pass : pass_list()) different.insert(*passes_hash({.disabled = {std::string(pass.name)}}));
  EXPECT_EQ(different.size(), pass_list().size() + 1);
}

// The keys of caches on disk contain this hash of the passes' names, versions and order. Every build must compute the
// same hash unless one of these changes.
TEST(PassesHash, IsTheSameInEveryBuild) {
  std::string versions;
  for (const Pass& pass : pass_list()) versions += std::string(pass.name) + " " + std::to_string(pass.version) + "\n";
  EXPECT_EQ(versions,
            "fold_constants 1\nremove_copies 1\nmerge_common_subexpressions 1\nremove_dead_code 1\n"
            "fuse_native_forms 2\n");
  EXPECT_EQ(passes_hash()->hex(), "5dfbc3581403efc04650574609be9510");
}

}  // namespace
}  // namespace tessera
