// Catches: a plugin's compiler whose wrong program is accepted; instructions that are bound to wrong values; a load()
// that gets the wrong handle.
#include "tessera/plugin/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ir/text.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/plugin/c_call.h"

namespace tessera::plugin {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPiece = R"(graph @piece {
  input %x: f32[T, 8]
  %a: f32[T, 8] = silu(%x)
  %y: f32[T, 8] = add(%a, %x)
  return %y
})";

enum class Does { kKeeps, kReplaces, kNamesNoValue, kForgetsANode, kWritesNoJson, kFails, kThrowsHash };
Does does = Does::kKeeps;
std::string loaded_handle;

int32_t bind(void* /*self*/, const tessera_plugin_call* call, void** bound, tessera_plugin_error* /*error*/) {
  *bound = new tessera_plugin_call(*call);
  return TESSERA_PLUGIN_OK;
}
int32_t enqueue(const void* /*bound*/, void* /*stream*/, tessera_plugin_error* /*error*/) { return TESSERA_PLUGIN_OK; }
void release(void* bound) { delete static_cast<tessera_plugin_call*>(bound); }

const tessera_plugin_kernel& kernel() {
  static const tessera_plugin_kernel made = [] {
    tessera_plugin_kernel k{};
    k.size = sizeof(k);
    k.name = "silu_add";
    k.bind = bind;
    k.enqueue = enqueue;
    k.release = release;
    return k;
  }();
  return made;
}

void hash(void* /*self*/, const tessera_plugin_text* out) {
  if (does == Does::kThrowsHash) throw std::runtime_error("no hash today");
  out->append(out, "1", 1);
}

int32_t compile(void* /*self*/, const tessera_plugin_piece* piece, const tessera_plugin_program* program,
                const tessera_plugin_text* handle, tessera_plugin_error* error) {
  EXPECT_EQ(piece->num_nodes, 2u);
  EXPECT_EQ(piece->values[0].is_result, 0);
  EXPECT_EQ(piece->values[2].is_output, 1);
  const std::string kept = does == Does::kWritesNoJson ? "{" : "[7]";
  handle->append(handle, kept.data(), kept.size());
  if (does == Does::kFails) return tessera_plugin_fail(error, TESSERA_PLUGIN_UNIMPLEMENTED, "not this piece");
  if (does == Does::kReplaces || does == Does::kNamesNoValue) {
    const std::int32_t operand = does == Does::kReplaces ? 0 : 99;
    tessera_plugin_piece_node node{};
    node.op = "silu_add";
    node.operands = &operand;
    node.num_operands = 1;
    node.results = piece->nodes[1].results;
    node.num_results = 1;
    (void)program->add_instruction(program, &node, &kernel(), "y = silu(x) + x", error);
    return TESSERA_PLUGIN_OK;  // reports success although add_instruction() may have failed
  }
  if (does != Does::kForgetsANode) (void)program->keep_node(program, 0, error);
  return program->keep_node(program, 1, error);
}

int32_t load(void* self, const tessera_plugin_piece* piece, const char* handle, const tessera_plugin_program* program,
             tessera_plugin_error* error) {
  loaded_handle = handle;
  TextSink unused;
  return compile(self, piece, program, unused.get(), error);
}

class PluginCompilers : public ::testing::Test {
 protected:
  void SetUp() override {
    tessera_plugin_compiler table{};
    table.size = sizeof(table);
    table.name = "test";
    table.hash = hash;
    table.compile = compile;
    table.load = load;
    table_ = CompilerTable::create(&table).value();
    does = Does::kKeeps;
    compiler_ = make().value();
  }
  Result<std::unique_ptr<Compiler>> make() {
    return make_plugin_compiler(table_, {.device = *device_, .ops = ops_, .kernels = cpu_kernels()});
  }
  Result<CompiledPiece> run(Does what) {
    does = what;
    return compile_piece(*compiler_, piece_);
  }

  const ir::OpTable ops_ = built_in_ops();
  const ir::Graph piece_ = ir::parse_graph(kPiece, &ops_).value();
  std::unique_ptr<CpuDevice> device_ = CpuDevice::create({.threads = 1}).value();
  std::shared_ptr<const CompilerTable> table_;
  std::unique_ptr<Compiler> compiler_;
};

TEST_F(PluginCompilers, KeepsNodesWithTheEnginesKernels) {
  const CompiledPiece piece = run(Does::kKeeps).value();
  ASSERT_EQ(piece.program.instructions.size(), 2u);
  EXPECT_EQ(piece.program.instructions[1].kernel.name, (*cpu_kernels().get("add"))->name);
}

TEST_F(PluginCompilers, RunsAGroupByItsOwnKernel) {
  const CompiledPiece piece = run(Does::kReplaces).value();
  ASSERT_EQ(piece.program.instructions.size(), 1u);
  EXPECT_EQ(piece.program.instructions[0].kernel.name, "silu_add");
  EXPECT_EQ(piece.program.instructions[0].listing, "y = silu(x) + x");
  EXPECT_EQ(piece.program.value(piece.program.instructions[0].call.results[0]).name, "y");
}

TEST_F(PluginCompilers, ErrorsNameTheCompiler) {
  const std::pair<Does, const char*> mistakes[] = {{Does::kNamesNoValue, "operands 0 is value 99; there are 3"},
                                                   {Does::kForgetsANode, "a"},
                                                   {Does::kFails, "not this piece"}};
  for (const auto& [mistake, words] : mistakes) {
    const Status status = run(mistake).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), ::testing::AllOf(HasSubstr("test"), HasSubstr(words)));
  }
  does = Does::kWritesNoJson;
  EXPECT_THAT(compiler_->compile(piece_).status().message(), HasSubstr("its handle"));
}

TEST_F(PluginCompilers, AHashThatThrowsRefusesTheCompiler) {
  does = Does::kThrowsHash;
  EXPECT_THAT(make().status().message(),
              ::testing::AllOf(HasSubstr("compiler test: hash"), HasSubstr("no hash today")));
}

TEST_F(PluginCompilers, LoadGetsTheHandle) {
  does = Does::kReplaces;
  const CompilerOutput output = compiler_->compile(piece_).value();
  EXPECT_EQ(output.handle.dump(), "[7]");
  EXPECT_EQ(compiler_->load(piece_, output.handle)->instructions.size(), 1u);
  EXPECT_EQ(loaded_handle, "[7]");
}

}  // namespace
}  // namespace tessera::plugin
