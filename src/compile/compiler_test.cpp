// A compiler turns a piece of a model's graph into a program. It also returns a handle, from which a later process can
// load the program. Catches: a piece that is compiled again although an earlier process saved its handle; a handle that
// is loaded although the piece, the compiler's version or an option differs; and a broken handle or program that is
// used.
#include "tessera/compile/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tessera/base/log.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/compile/eager.h"
#include "tessera/compile/value_memory_test_util.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Compiles scale(scale(x)) to one instruction. The handle is the factor. `compiled` counts the compilations.
class FactorCompiler : public Compiler {
 public:
  FactorCompiler(const CompilerContext& context, int version) : Compiler(context), version_(version) {}

  std::string_view name() const override { return "factor"; }
  Hash128 hash() const override {
    Hasher hasher;
    hasher.add(version_);
    hasher.add(context().options.deterministic);
    return hasher.finish();
  }
  Result<CompilerOutput> compile(const ir::Graph& scaled_piece) const override {
    ++compiled;
    double factor = 1;
    for (const ir::Node& node : scaled_piece.nodes) factor *= node.attribute_or("factor", 1.0);
    Json handle = Json::object();
    handle.set("factor", factor);
    return CompilerOutput{.program = TRY(load(scaled_piece, handle)), .handle = std::move(handle)};
  }
  Result<Program> load(const ir::Graph& scaled_piece, const Json& handle) const override {
    const Json* factor = handle.find("factor");
    if (factor == nullptr) return data_loss("the handle has no factor");
    Program program = TRY(eager_program(scaled_piece, context().ops, context().kernels));
    Instruction& last = program.instructions.back();
    last.call.operands = {scaled_piece.inputs[0]};
    last.call.attributes = {{"factor", factor->as_double()}};
    program.instructions = {last};
    return program;
  }

  mutable int compiled = 0;

 private:
  int version_;
};

ir::Graph scaled_piece(const std::string& name = "x", const std::string& factor = "3.0") {
  return testing::parse("graph @g { input %" + name + ": f32[T, 2] %a" + name + " = scale(%" + name +
                            ") {factor = 2.0} %b" + name + " = scale(%a" + name + ") {factor = " + factor +
                            "} return %b" + name + " }",
                        built_in_ops());
}

class CompilerCache : public ::testing::Test {
 protected:
  // The environment variable that gives the second process the cache folder of the first process. The variable is not
  // set in the first process.
  static constexpr const char* kFolder = "TESSERA_TEST_COMPILER_CACHE";

  CompilerCache() {
    if (const char* given = std::getenv(kFolder); given != nullptr) root_ = given;
    next_start();
  }
  // Replaces the cache object, as in a new process. Only the content of the folder remains.
  void next_start() { cache_ = std::make_unique<ProfileCache>(ProfileCacheOptions{.root = root_}); }

  CompilerContext context(bool deterministic = false) {
    return {.device = *device_,
            .ops = built_in_ops(),
            .kernels = cpu_kernels(),
            .options = {.deterministic = deterministic},
            .cache = cache_.get()};
  }
  FactorCompiler compiler(int version = 1, bool deterministic = false) {
    return FactorCompiler(context(deterministic), version);
  }
  // Returns the program's results for the inputs 1 and 2.
  std::vector<float> run(const Program& program) {
    testing::ValueMemory values(*device_, *stream_, program, testing::tokens(1));
    values.write("x", {1, 2});
    EXPECT_TRUE(program.bind(values.target(testing::tokens(1), context_))->enqueue(*stream_).ok());
    return values.read("bx");
  }
  // Runs this test again in another process, and returns its exit code.
  int run_second_process() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string filter = std::string("--gtest_filter=") + info->test_suite_name() + "." + info->name();
    std::string program = "/proc/self/exe";
    char* const arguments[] = {program.data(), filter.data(), nullptr};
    setenv(kFolder, root_.c_str(), 1);
    pid_t child = 0;
    const int spawned = posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ);
    unsetenv(kFolder);
    if (spawned != 0) return -1;
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::unique_ptr<CpuDevice> device_ = CpuDevice::create({.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  ForwardContext context_;
  test::ScratchDir scratch_;
  std::string root_ = scratch_.path();
  std::unique_ptr<ProfileCache> cache_;
};

TEST_F(CompilerCache, ASecondProcessLoadsTheFirstOnesPrograms) {
  const bool second = std::getenv(kFolder) != nullptr;
  const FactorCompiler factors = compiler();
  const Result<CompiledPiece> made = compile_piece(factors, scaled_piece());
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->loaded, second);
  EXPECT_EQ(factors.compiled, second ? 0 : 1);
  EXPECT_EQ(made->program.instructions.size(), 1u);
  EXPECT_THAT(run(made->program), ::testing::ElementsAre(6, 12));
  if (second) return;
  EXPECT_EQ(run_second_process(), 0);
}

TEST_F(CompilerCache, APieceWithOtherNamesIsTheSamePiece) {
  const FactorCompiler factors = compiler();
  ASSERT_TRUE(compile_piece(factors, scaled_piece("first")).ok());
  const CompiledPiece again = *compile_piece(factors, scaled_piece("x"));
  EXPECT_FALSE(again.loaded) << "it was made by this start";
  EXPECT_EQ(factors.compiled, 1);
  EXPECT_THAT(run(again.program), ::testing::ElementsAre(6, 12));
}

TEST_F(CompilerCache, WithoutAFolderAPieceIsCompiledOnce) {
  cache_ = std::make_unique<ProfileCache>(ProfileCacheOptions{});
  const FactorCompiler predicts = compiler();
  const FactorCompiler builds = compiler();
  EXPECT_FALSE(compile_piece(predicts, scaled_piece())->loaded);
  const CompiledPiece again = *compile_piece(builds, scaled_piece());
  EXPECT_FALSE(again.loaded);
  EXPECT_EQ(predicts.compiled, 1);
  EXPECT_EQ(builds.compiled, 0);
  EXPECT_THAT(run(again.program), ::testing::ElementsAre(6, 12));
}

TEST_F(CompilerCache, AnotherPieceVersionOrOptionIsCompiled) {
  ASSERT_TRUE(compile_piece(compiler(), scaled_piece()).ok());
  next_start();
  EXPECT_TRUE(compile_piece(compiler(), scaled_piece())->loaded);
  EXPECT_FALSE(compile_piece(compiler(), scaled_piece("x", "4.0"))->loaded);
  EXPECT_FALSE(compile_piece(compiler(2), scaled_piece())->loaded);
  EXPECT_FALSE(compile_piece(compiler(1, true), scaled_piece())->loaded);
}

TEST_F(CompilerCache, AHandleThatDoesNotLoadIsReplaced) {
  ASSERT_TRUE(compile_piece(compiler(), scaled_piece()).ok());
  next_start();
  const FactorCompiler factors = compiler();
  // Replaces the cache entry of the piece with a handle that the compiler would never write.
  for (const auto& file : std::filesystem::recursive_directory_iterator(root_)) {
    if (file.is_regular_file()) std::filesystem::remove(file.path());
  }
  Hasher key;
  key.add(factors.name());
  key.add(factors.hash().high);
  key.add(factors.hash().low);
  key.add(structure_key(scaled_piece()));
  cache_->save("programs", key.finish(), Json::object());
  ::testing::internal::CaptureStderr();
  const CompiledPiece made = *compile_piece(factors, scaled_piece());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("compiled again"), HasSubstr("the handle has no factor")));
  EXPECT_FALSE(made.loaded);
  next_start();
  EXPECT_TRUE(compile_piece(compiler(), scaled_piece())->loaded);
}

// A compiler that compiles like FactorCompiler, but cannot load its own handles.
class ForgetfulCompiler final : public FactorCompiler {
 public:
  using FactorCompiler::FactorCompiler;
  Result<CompilerOutput> compile(const ir::Graph& scaled_piece) const override {
    CompilerOutput made = TRY(FactorCompiler::compile(scaled_piece));
    made.handle = Json::object();
    return made;
  }
};

TEST_F(CompilerCache, AnUnloadableHandleOfThisStartIsCompiledAgain) {
  const ForgetfulCompiler forgetful(context(), 1);
  ASSERT_TRUE(compile_piece(forgetful, scaled_piece()).ok());
  ::testing::internal::CaptureStderr();
  const Result<CompiledPiece> again = compile_piece(forgetful, scaled_piece("x"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the handle has no factor"));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(forgetful.compiled, 2);
  EXPECT_THAT(run(again->program), ::testing::ElementsAre(6, 12));
}

TEST_F(CompilerCache, TheEagerCompilerKeepsNothing) {
  const auto eager =
      make_eager_compiler({.device = *device_, .ops = built_in_ops(), .kernels = cpu_kernels(), .cache = cache_.get()});
  ASSERT_TRUE(compile_piece(*eager, scaled_piece()).ok());
  EXPECT_FALSE(compile_piece(*eager, scaled_piece())->loaded);
  EXPECT_TRUE(list_profiles(root_)->empty());
}

class BrokenCompiler final : public Compiler {
 public:
  using Compiler::Compiler;
  std::string_view name() const override { return "broken"; }
  Hash128 hash() const override { return Hasher().finish(); }
  Result<CompilerOutput> compile(const ir::Graph& /*scaled_piece*/) const override { return CompilerOutput{}; }
  Result<Program> load(const ir::Graph& /*scaled_piece*/, const Json& /*handle*/) const override { return Program{}; }
};

TEST_F(CompilerCache, AMissingOutputIsRefusedWithItsCompiler) {
  const BrokenCompiler broken({.device = *device_, .ops = built_in_ops(), .kernels = cpu_kernels()});
  EXPECT_THAT(compile_piece(broken, scaled_piece()).status().message(),
              AllOf(HasSubstr("compiler broken"), HasSubstr("%bx is missing")));
}

TEST(StructureKey, DependsOnStructureAndNotOnNames) {
  EXPECT_EQ(structure_key(scaled_piece("x")), structure_key(scaled_piece("y")));
  EXPECT_NE(structure_key(scaled_piece("x")), structure_key(scaled_piece("x", "4.0")));
  const auto key = [](const char* text) { return structure_key(testing::parse(text, built_in_ops())); };
  EXPECT_NE(key("graph @g { input %x: f32[T, 2] %y = add(%x, %x) return %y }"),
            key("graph @g { input %x: f32[T, 2] input %z: f32[T, 2] %y = add(%x, %z) return %y }"));
  EXPECT_NE(key("graph @g { input %x: f32[T, 2] %y = add(%x, %x) return %y }"),
            key("graph @g { input %x: f32[T, 4] %y = add(%x, %x) return %y }"));
}

}  // namespace
}  // namespace tessera
