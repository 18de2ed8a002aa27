// Catches: a plugin's kernel that is bound to the wrong values or is not released; a kernel's error that is lost or
// affects other launches; a shape rule whose result for sizes differs from its result for symbols; a registry that
// contains plugins that were loaded into another registry.
#include "tessera/plugin/kernel.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ir/builder.h"
#include "tessera/ir/text.h"
#include "tessera/plugin/load.h"

namespace tessera::plugin {
namespace {

using ::testing::HasSubstr;

std::string file_of(const std::string& fault) { return std::string(TESSERA_TEST_PLUGINS) + "/fault_" + fault + ".so"; }

// Returns the function `name` of the loaded plugin that has the fault `fault`.
template <class F>
F* function_of(const std::string& fault, const char* name) {
  void* library = dlopen(file_of(fault).c_str(), RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(library, nullptr);
  auto* function = reinterpret_cast<F*>(dlsym(library, name));
  dlclose(library);  // the registry keeps the library loaded
  return function;
}

class PluginKernel : public ::testing::Test {
 protected:
  void load(const std::string& fault) {
    auto loaded = load_plugins({file_of(fault)});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    registry_ = *loaded;
    device_ = CpuDevice::create({.threads = 1}).value();
    stream_ = device_->create_stream("main").value();
    memory_ = device_->allocate(1024, "test").value();
  }

  Result<std::unique_ptr<BoundOp>> bind() { return bind_in(*registry_); }

  Result<std::unique_ptr<BoundOp>> bind_in(const Registry& registry) {
    const TensorView x{.data = memory_->data(), .dtype = ir::DType::kFloat32, .rank = 2, .dims = {4, 8}};
    const TensorView operands[] = {x};
    const TensorView results[] = {x};
    const ir::Node node{.op = "fault_op", .operands = {ir::ValueId(0)}, .results = {ir::ValueId(1)}};
    const KernelDef* kernel = TRY((*registry.devices.kernels("cpu"))->get("fault_op"));
    return kernel->bind(
        {.node = node, .operands = operands, .results = results, .device = *device_, .context = context_});
  }

  std::shared_ptr<const Registry> registry_;
  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Allocation> memory_;
  ForwardContext context_;
};

TEST_F(PluginKernel, RunsEagerlyAndFromAGraphAndIsReleased) {
  load("NONE");
  const auto live = function_of<int()>("NONE", "fault_live");
  {
    const std::unique_ptr<BoundOp> op = bind().value();
    EXPECT_EQ(live(), 1);
    EXPECT_TRUE(op->enqueue(*stream_).ok());
    ASSERT_TRUE(stream_->begin_recording("test").ok());
    EXPECT_TRUE(op->enqueue(*stream_).ok());
    const std::unique_ptr<RecordedGraph> graph = stream_->end_recording().value();
    EXPECT_EQ(graph->stats().nodes, 1);
    EXPECT_TRUE(graph->launch(*stream_).ok());
  }
  EXPECT_EQ(live(), 0);
}

TEST_F(PluginKernel, AnErrorAffectsOnlyItsLaunch) {
  load("NONE");
  const auto fail_launch = function_of<void(int)>("NONE", "fault_fail_launch");
  const std::unique_ptr<BoundOp> op = bind().value();
  fail_launch(0);
  const Status eager = op->enqueue(*stream_);
  EXPECT_EQ(eager.code(), StatusCode::kInternal);
  EXPECT_THAT(eager.message(), HasSubstr("fault_kernel: the kernel has had enough"));
  EXPECT_TRUE(op->enqueue(*stream_).ok());

  ASSERT_TRUE(stream_->begin_recording("test").ok());
  EXPECT_TRUE(op->enqueue(*stream_).ok());
  const std::unique_ptr<RecordedGraph> graph = stream_->end_recording().value();
  fail_launch(0);
  EXPECT_THAT(graph->launch(*stream_).message(), HasSubstr("kernel 'fault_kernel': the kernel has had enough"));
  EXPECT_TRUE(graph->launch(*stream_).ok());
}

TEST_F(PluginKernel, ARefusalToBindNamesTheKernel) {
  load("BIND_REFUSES");
  const Status status = bind().status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("fault_kernel: not on a Sunday"));
}

TEST_F(PluginKernel, BindingFindsAShapeRuleThatContradictsItself) {
  load("LYING_RULE");
  const Status status = bind().status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(
      status.message(),
      HasSubstr("gives f32[5, 8] for the sizes of this bucket, but its answer for all sizes is f32[4, 8] here"));
}

TEST_F(PluginKernel, RegistriesKeepSeparateLibraries) {
  load("LYING_RULE");
  auto other = load_plugins({file_of("NONE")});
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_THAT(bind().status().message(), HasSubstr("shape rule is inconsistent"));
  EXPECT_TRUE(bind_in(**other).ok());
  *other = nullptr;
  EXPECT_THAT(bind().status().message(), HasSubstr("shape rule is inconsistent"));
}

TEST_F(PluginKernel, ALibraryOutlivesItsFirstRegistry) {
  load("NONE");
  auto other = load_plugins({file_of("NONE")});
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_TRUE(bind().ok());
  registry_ = nullptr;
  const Result<std::unique_ptr<BoundOp>> op = bind_in(**other);
  ASSERT_TRUE(op.ok()) << op.status().to_string();
  EXPECT_TRUE((*op)->enqueue(*stream_).ok());
}

TEST_F(PluginKernel, ARuleThatRefusesOrThrowsRefusesTheGraph) {
  for (const auto& [fault, words] : {std::pair{"RULE_REFUSES", "x is not to my taste"},
                                     std::pair{"RULE_THROWS", "threw an exception, which it must not: no types"}}) {
    load(fault);
    ir::GraphBuilder b("g", registry_->ops);
    b.output(b.op("fault_op", {b.input("x", {ir::DType::kFloat32, {ir::Symbol::kTokens, 8}})}));
    EXPECT_THAT(b.finish().status().message(), HasSubstr(words));
    registry_ = nullptr;
  }
}

TEST_F(PluginKernel, ItsOperatorIsReadAndPrintedLikeOthers) {
  load("NONE");
  const std::string text = "graph @g {\n  input %x: f32[2*T + 8, 64]\n  %y = fault_op(%x)\n  return %y\n}\n";
  const Result<ir::Graph> graph = ir::parse_graph(text, &registry_->ops);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_THAT(ir::to_text(*graph), HasSubstr("%y: f32[2*T + 8, 64] = fault_op(%x)"));
}

}  // namespace
}  // namespace tessera::plugin
