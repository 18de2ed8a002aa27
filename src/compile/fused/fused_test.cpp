// Catches: a fused program that computes something other than the operators that it replaces; a value that is stored
// although it is read only within the group of fused operators that computes it; a piece that is compiled again
// although the cache has it; and an error for a piece that the eager compiler could run.
#include "tessera/compile/fused/fused.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/compile/eager.h"
#include "tessera/compile/fused/fused_test_util.h"
#include "tessera/compile/random_graph_test_util.h"
#include "tessera/ops/linear/linear.h"
#include "tessera/ops/rows/activation.h"
#include "tessera/ops/rows/norm.h"

namespace tessera {
namespace {

using testing::CountingBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RandomGraph;
using testing::RandomGraphRunner;

constexpr const char* kPiece = R"(graph @piece {
  input %x: f32[T, 8]
  input %r: f32[T, 8]
  weight %w: f32[8]
  weight %m: f32[16, 8]
  %n: f32[T, 8], %sum: f32[T, 8] = add_rms_norm(%x, %r, %w) {eps = 0.5}
  %wide: f32[T, 16] = linear(%n, %m)
  %y: f32[T, 8] = silu_mul(%wide)
  return %y, %sum
})";

std::vector<std::string> ops_of(const Program& program) {
  std::vector<std::string> ops;
  for (const Instruction& instruction : program.instructions) ops.push_back(instruction.call.op);
  return ops;
}

class Fused : public ::testing::Test {
 protected:
  CompilerContext context(ProfileCache* cache = nullptr) {
    return {.device = *device_, .ops = built_in_ops(), .kernels = kernels_, .row_kernels = &builder_, .cache = cache};
  }
  // Compiles with a new compiler and a new cache object, as in a new process.
  Result<CompiledPiece> compile(const std::string& text = kPiece, const std::string& cache_root = "") {
    ProfileCache cache({.root = cache_root});
    const std::unique_ptr<Compiler> compiler = TRY(make_fused_compiler(context(&cache)));
    return compile_piece(*compiler, testing::parse(text, built_in_ops()));
  }

  std::int64_t entries() { return (*list_profiles(root_))["programs"].entries; }

  test::ScratchDir scratch_;
  std::string root_ = scratch_.path();
  KernelTable kernels_ = cpu_kernels();
  CountingBuilder builder_;
  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
};

TEST_F(Fused, ValuesOfAGroupVanish) {
  const Result<CompiledPiece> piece = compile();
  ASSERT_TRUE(piece.ok()) << piece.status().to_string();
  EXPECT_THAT(ops_of(piece->program), ElementsAre("fused.add.rms_norm", "linear", "fused.split.silu.mul"));
  std::vector<std::string> names;
  for (const ProgramValue& value : piece->program.values) names.push_back(value.name);
  EXPECT_THAT(names, ElementsAre("x", "r", "w", "m", "sum", "n", "wide", "y"));
  EXPECT_EQ(piece->program.instructions[0].kernel.name, "counting");
  EXPECT_THAT(piece->program.instructions[0].listing, HasSubstr("rms_norm(%2, %3)"));
}

TEST_F(Fused, RandomGraphsComputeTheSameAsUnfused) {
  RandomGraphRunner runner;
  const Result<std::unique_ptr<Compiler>> compiler = make_fused_compiler(
      {.device = runner.device(), .ops = built_in_ops(), .kernels = cpu_kernels(), .row_kernels = &cpu_row_kernels()});
  ASSERT_TRUE(compiler.ok()) << compiler.status().to_string();
  std::set<std::string> groups;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Result<ir::Graph> graph = RandomGraph(seed).make(4 + static_cast<int>(seed % 20));
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    Result<CompiledPiece> piece = compile_piece(**compiler, *graph);
    ASSERT_TRUE(piece.ok()) << "seed " << seed << ": " << piece.status().to_string() << "\n" << ir::to_text(*graph);
    ASSERT_THAT(piece->program.notes, ElementsAre());
    for (const std::string& op : ops_of(piece->program))
      if (op.starts_with("fused.")) groups.insert(op);
    const auto fused = runner.run(*graph, std::move(piece->program));
    const auto eager = runner.run(*graph, eager_program(*graph, built_in_ops(), cpu_kernels()));
    ASSERT_TRUE(testing::close(eager, fused)) << "seed " << seed << "\n" << ir::to_text(*graph);
  }
  EXPECT_GT(groups.size(), 50U);
}

TEST_F(Fused, TheNextProcessCompilesNothing) {
  ASSERT_TRUE(compile(kPiece, root_).ok());
  EXPECT_EQ(builder_.compiled.size(), 2U);
  const Result<CompiledPiece> again = compile(kPiece, root_);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(again->loaded);
  EXPECT_EQ(builder_.compiled.size(), 2U);
  EXPECT_THAT(ops_of(again->program), ElementsAre("fused.add.rms_norm", "linear", "fused.split.silu.mul"));
  // Code from another version of the builder must not be loaded.
  builder_.version_text = "2";
  EXPECT_FALSE(compile(kPiece, root_)->loaded);
  EXPECT_EQ(builder_.compiled.size(), 4U);
}

TEST_F(Fused, ADamagedEntryIsCompiledAgain) {
  ASSERT_TRUE(compile(kPiece, root_).ok());
  for (const auto& file : std::filesystem::recursive_directory_iterator(root_)) {
    if (!file.is_regular_file()) continue;
    std::string text = *read_text_file(file.path());
    const std::size_t at = text.find("\"kernels\"") + 60;  // a position inside the code of a kernel
    text[at] = text[at] == 'A' ? 'B' : 'A';
    std::ofstream(file.path()) << text;
  }
  const Result<CompiledPiece> again = compile(kPiece, root_);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_FALSE(again->loaded);
  EXPECT_EQ(builder_.compiled.size(), 4U);
  EXPECT_TRUE(compile(kPiece, root_)->loaded);
}

// A cache entry with a correct checksum may still contain a wrong handle. load() must return an error for an empty
// handle, and for a handle in which the code of a kernel is not base64, not a string, or not from the builder.
TEST_F(Fused, AForeignHandleIsRefused) {
  const Result<std::unique_ptr<Compiler>> compiler = make_fused_compiler(context());
  ASSERT_TRUE(compiler.ok());
  const ir::Graph piece = testing::parse(kPiece, built_in_ops());
  const Json handle = (*compiler)->compile(piece)->handle;
  EXPECT_TRUE((*compiler)->load(piece, handle).ok());
  EXPECT_FALSE((*compiler)->load(piece, Json()).ok());
  Json kernels_of = *handle.find("kernels");
  for (const Json& code : {Json("no base64!"), Json(1), Json("QUJD")}) {
    Json other = kernels_of;
    other.set(kernels_of.as_object()[0].first, code);
    Json broken = Json::object();
    broken.set("kernels", other);
    EXPECT_FALSE((*compiler)->load(piece, broken).ok()) << code.dump();
  }
}

// Compiles one graph for each hand-fused operator. The fused compiler computes the operator's native form (its
// decomposition into simpler operators) in one generated kernel. The eager compiler uses the operator's registered
// kernel.
TEST_F(Fused, NativeFormsAreUsedInsideAndKernelsOutside) {
  const std::map<std::string, std::string> statements = {
      {"add_rms_norm", "%y, %s = add_rms_norm(%x, %r, %w) {eps = 0.5} return %y, %s"},
      {"head_norm", "%n = head_norm(%x, %hw) {eps = 0.5} %y = silu(%n) return %y"},
      {"silu_mul", "%y = silu_mul(%x) return %y"},
      {"gelu_mul", "%y = gelu_mul(%x) {tanh = false} return %y"},
      {"qkv_rope_store", "%y = qkv_rope_store(%qkv, %table, %slots, mut %kc, mut %vc) {heads = 2} return %y"}};
  constexpr const char* kDeclared = R"(graph @g {
    input %x: f32[T, 8] input %r: f32[T, 8] input %qkv: f32[T, 16] input %table: f32[T, 4] input %slots: i32[T]
    weight %w: f32[8] weight %hw: f32[4] state %kc: f32[P, 16, 1, 4] state %vc: f32[P, 16, 1, 4] )";
  for (const ir::OpDecl* op : built_in_ops().all()) {
    if (op->decompose == nullptr) continue;
    ASSERT_TRUE(statements.contains(std::string(op->name))) << op->name << " has no case";
    const std::string text = kDeclared + statements.at(std::string(op->name)) + "}";
    const Result<CompiledPiece> piece = compile(text);
    ASSERT_TRUE(piece.ok()) << piece.status().to_string();
    EXPECT_THAT(ops_of(piece->program), ElementsAre(HasSubstr("fused."))) << op->name;
    const Result<Program> eager = eager_program(testing::parse(text, built_in_ops()), built_in_ops(), cpu_kernels());
    EXPECT_EQ(eager->instructions[0].call.op, op->name);
    EXPECT_EQ(eager->instructions[0].kernel.name, cpu_kernels().find(op->name)->name);
  }
}

std::string piece_of_width(int width) {
  return "graph @g { input %x: f32[T, " + std::to_string(width) +
         "] %a = silu(%x) %b = scale(%a) {factor = 2.0} return %b }";
}

// A process is killed while it compiles the third piece. It leaves two cache entries, and the next process compiles the
// remaining pieces.
TEST_F(Fused, AKilledProcessKeepsItsCompiledPieces) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (int width = 1; width <= 2; ++width) static_cast<void>(compile(piece_of_width(width), root_));
    builder_.dies = true;
    static_cast<void>(compile(piece_of_width(3), root_));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(entries(), 2);
  std::vector<bool> loaded;
  for (int width = 1; width <= 4; ++width) loaded.push_back(compile(piece_of_width(width), root_)->loaded);
  EXPECT_THAT(loaded, ElementsAre(true, true, false, false));
  EXPECT_EQ(builder_.compiled.size(), 2U);
  EXPECT_EQ(entries(), 4);
}

TEST_F(Fused, AnUncompilablePieceRunsAsItsOperatorsDo) {
  builder_.fails = true;
  const Result<CompiledPiece> piece = compile(kPiece, root_);
  ASSERT_TRUE(piece.ok()) << piece.status().to_string();
  EXPECT_THAT(ops_of(piece->program), ElementsAre("add_rms_norm", "linear", "silu_mul"));
  EXPECT_THAT(piece->program.notes, ElementsAre(HasSubstr("out of order")));
  EXPECT_EQ(entries(), 0);  // so the next process tries again
}

// Returns a table with a joined kernel for two operators. The kernel is never bound: the test only checks that the
// compiler finds the join.
KernelTable kernels_that_join(std::string_view first, std::string_view second) {
  return KernelTable({kLinearCpu, kAddRmsNormCpu, kSiluMulCpu},
                     {{.ops = {first, second}, .name = "both", .most_rows = 4, .bind = nullptr}});
}
std::vector<std::size_t> joins_of(const Program& program) {
  std::vector<std::size_t> joins;
  for (const Instruction& instruction : program.instructions) joins.push_back(instruction.joins.size());
  return joins;
}

TEST_F(Fused, OperatorsThatStayOperatorsAreJoined) {
  kernels_ = kernels_that_join("linear", "linear");
  constexpr const char* kLinears = R"(graph @g {
    input %x: f32[T, 8] weight %w: f32[8, 8]
    %a = silu(%x) %b = scale(%a) {factor = 2.0}
    %c = linear(%b, %w) %d = linear(%c, %w) %e = linear(%d, %w)
    return %d, %e })";
  for (const bool loaded : {false, true}) {
    const Result<CompiledPiece> piece = compile(kLinears, root_);
    ASSERT_TRUE(piece.ok()) << piece.status().to_string();
    EXPECT_EQ(piece->loaded, loaded);
    EXPECT_THAT(ops_of(piece->program), ElementsAre("fused.silu.scale", "linear", "linear", "linear"));
    EXPECT_THAT(joins_of(piece->program), ElementsAre(0, 1, 0, 0)) << "the second linear's result is an output";
  }
}

TEST_F(Fused, GroupsAreNotJoinedButUnfusedPiecesAre) {
  kernels_ = kernels_that_join("linear", "silu_mul");
  EXPECT_THAT(joins_of(compile()->program), ElementsAre(0, 0, 0));
  builder_.fails = true;
  EXPECT_THAT(joins_of(compile()->program), ElementsAre(0, 1, 0));
}

TEST_F(Fused, ADeviceWithoutABuilderIsRefused) {
  const CompilerContext without{.device = *device_, .ops = built_in_ops(), .kernels = cpu_kernels()};
  EXPECT_THAT(make_fused_compiler(without).status().message(), HasSubstr("compiler fused: device "));
}

}  // namespace
}  // namespace tessera
