// Catches: a cut, a memory plan or a capture that changes the results of a forward. Random graphs with views, in-place
// writes and states are cut at random operators. For several buckets, and after all of them were captured, the results
// are compared bit for bit with those of the same graph without cuts and without a memory plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/ir/builder.h"
#include "tessera/ir/verify.h"
#include "tessera/piecewise/executable_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ir::ValueId;
using testing::bench_ops;
using testing::ExecutableBench;
using testing::tokens;

class RandomForward {
 public:
  explicit RandomForward(std::uint64_t seed) : random_(seed) {}

  Result<ir::Graph> make() {
    wide_ = {b_.input("x", kWide), b_.input("y", kWide)};
    const ValueId state = b_.state("s", kWide);
    result(b_.op("add", {wide_[0], wide_[1]}));
    for (std::size_t i = 4 + below(20); i > 0; --i) add_node(state);
    for (std::size_t i = 1 + below(3); i > 0; --i) b_.output(made_[below(made_.size())]);
    return b_.finish();
  }
  std::vector<std::string> split_ops() {
    std::vector<std::string> names;
    for (const ir::OpDecl* decl : bench_ops().all())
      if (below(3) == 0) names.emplace_back(decl->name);
    return names;
  }

 private:
  inline static const ir::Type kWide{DType::kFloat32, {ir::Dim(Symbol::kTokens), 8}};

  std::size_t below(std::size_t n) { return random_() % n; }
  ValueId any() { return wide_[below(wide_.size())]; }
  void result(ValueId value) {
    wide_.push_back(value);
    made_.push_back(value);
  }
  ValueId weight() { return b_.weight("w" + std::to_string(below(3)), {DType::kFloat32, {8, 8}}); }

  void add_node(ValueId state) {
    switch (below(9)) {
      case 0: return result(b_.op("add", {any(), any()}));
      case 1: return result(b_.op("mul", {any(), any()}));
      case 2: return result(b_.op("scale", {any()}, {{"factor", 0.5}}));
      case 3: return result(b_.op("linear", {any(), weight()}));
      case 4: return result(b_.op("matmul", {any(), weight()}));
      case 5: return split_and_join();
      case 6: return view_and_back();
      case 7: {
        const ValueId from = any();
        const ValueId out = b_.op("empty_like", {from});
        b_.op("store", {from, out});
        return result(out);
      }
      default: return write_in_place(state);
    }
  }
  void split_and_join() {
    const std::vector<ValueId> halves = b_.multi_op("split", {any()}, {{"sizes", std::vector<std::int64_t>{4, 4}}});
    const ValueId product = b_.op("mul", {halves[0], halves[1]});
    const ValueId w = b_.weight("narrow", {DType::kFloat32, {8, 4}});
    result(b_.op("linear", {product, w}));
  }
  // Reshapes a result to one dimension and back, so that two names refer to the same memory.
  void view_and_back() {
    const ValueId of = made_[below(made_.size())];
    const ValueId flat = b_.op("reshape", {of}, {{"shape", std::string("8*T")}});
    result(b_.op("reshape", {flat}, {{"shape", std::string("T, 8")}}));
  }
  // Accumulates into the state or into an earlier result, which other nodes or views may also read. The addend is a
  // scaled copy, so no operand shares the written memory.
  void write_in_place(ValueId state) {
    const ValueId target = below(2) == 0 ? state : made_[below(made_.size())];
    const ValueId addend = b_.op("scale", {any()}, {{"factor", 0.25}});
    b_.op("accumulate", {addend, target});
    if (below(2) == 0) result(b_.op("add", {state, addend}));
  }

  std::mt19937_64 random_;
  ir::GraphBuilder b_{"random", bench_ops()};
  std::vector<ValueId> wide_;  // all values of type kWide that may be read
  std::vector<ValueId> made_;  // the members of wide_ that are results
};

TEST(SplitEquivalence, PartsInOrderAreTheWholeForward) {
  std::size_t parts = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    RandomForward forward(seed);
    Result<ir::Graph> graph = forward.make();
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const Status sound = ir::verify(*graph, bench_ops());
    ASSERT_TRUE(sound.ok()) << sound.to_string();
    const std::vector<std::string> split_ops = forward.split_ops();
    ExecutableBench bench(*std::move(graph), 12);
    const std::string shown = ir::to_text(bench.graph());
    Result<std::unique_ptr<Executable>> made = bench.create(split_ops);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    Executable& executable = **made;
    parts += executable.graph().parts.size();
    for (const std::int64_t size : {12, 5, 1}) {
      ASSERT_TRUE(executable.bind(tokens(size)).ok());
      ASSERT_TRUE(executable.capture(tokens(size)).ok());
    }
    for (const std::int64_t size : {1, 5, 12}) {
      const testing::Outcome want = bench.reference(size, seed);
      ASSERT_EQ(bench.replay(executable, size, seed), want) << "seed " << seed << " size " << size << "\n" << shown;
      ASSERT_EQ(bench.run(executable, size, seed), want) << "seed " << seed << " size " << size << "\n" << shown;
    }
  }
  EXPECT_GT(parts, 1000u) << "the cuts of these graphs";
}

}  // namespace
}  // namespace tessera
