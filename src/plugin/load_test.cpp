// Catches: a faulty plugin that is loaded, that crashes the program, or whose error does not say what is wrong; an
// operator, kernel or other addition of a plugin that does not reach the registry; a table of a plugin (a C struct that
// grows with new versions) that is refused although it has the layout of the first version.
#include "tessera/plugin/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tessera/base/testing/paths.h"
#include "tessera/plugin/c_table.h"
#include "tessera/plugin/probe.h"

namespace tessera::plugin {
namespace {

// A table whose second version has an additional member.
struct Grown {
  std::size_t size;
  std::int64_t first;
  const void* appended;
};

}  // namespace

template <>
inline constexpr std::size_t kFirstSize<Grown> = offsetof(Grown, first) + sizeof(Grown::first);

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string plugin_file(const std::string& fault) {
  return std::string(TESSERA_TEST_PLUGINS) + "/fault_" + fault + ".so";
}

struct Fault {
  std::string name;
  StatusCode code;
  std::string words;
  std::chrono::milliseconds limit = kPluginLimit;
};
std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

class LoadPlugin : public ::testing::TestWithParam<Fault> {};

TEST_P(LoadPlugin, RefusesAFaultyPluginWithFileAndReason) {
  const auto start = std::chrono::steady_clock::now();
  Registry registry = built_in_registry();
  const Status status = add_plugin(plugin_file(GetParam().name), registry, GetParam().limit);
  EXPECT_EQ(status.code(), GetParam().code) << status.to_string();
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("plugin "), HasSubstr("fault_" + GetParam().name), HasSubstr(GetParam().words)));
  EXPECT_TRUE(registry.plugins.empty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, LoadPlugin,
    ::testing::Values(
        Fault{"NO_INFO", StatusCode::kInvalidArgument, "no symbol tessera_plugin"},
        Fault{"NO_REGISTER", StatusCode::kInvalidArgument, "no function tessera_plugin_register"},
        Fault{"UNDEFINED", StatusCode::kInvalidArgument, "undefined symbol: nobody_has_this"},
        Fault{"OLD_ABI", StatusCode::kInvalidArgument, "version 99 of tessera_plugin.h; this engine has version 1"},
        Fault{"RETURNS_ERROR", StatusCode::kNotFound, "the moon is not full"},
        Fault{"STRANGE_CODE", StatusCode::kInternal, "returned 77, which is no code of tessera_plugin.h"},
        Fault{"THROWS", StatusCode::kInternal, "threw an exception, which it must not: out of the blue"},
        Fault{"SLOW", StatusCode::kInternal, "had not registered after 0.5 seconds", std::chrono::milliseconds(500)},
        Fault{"CRASH", StatusCode::kInternal, "it crashed while registering (Segmentation fault)"},
        Fault{"CRASH_AT_LOAD", StatusCode::kInternal, "it crashed while registering (Segmentation fault)"},
        Fault{"EXIT", StatusCode::kInternal, "ended the process while registering (exit code 3)"},
        Fault{"NULL_TABLE", StatusCode::kInvalidArgument, "the operator is null"},
        Fault{"SHORT_TABLE", StatusCode::kInvalidArgument, "the operator's size is 8"},
        Fault{"LATER_TABLE", StatusCode::kInvalidArgument, "members that this engine does not know"},
        Fault{"NO_RULE", StatusCode::kInvalidArgument, "operator fault_op: the table has no shape rule"},
        Fault{"NO_BIND", StatusCode::kInvalidArgument, "kernel fault_kernel of fault_op on cpu: the table has no bind"},
        Fault{"TAKEN_OP", StatusCode::kInvalidArgument, "silu_mul"},
        Fault{"BAD_NAME", StatusCode::kInvalidArgument, "the operator's name is \"no word\""},
        Fault{"UNKNOWN_DEVICE", StatusCode::kInvalidArgument, "no device is named \"abacus\"; there are cpu, cuda"},
        Fault{"UNKNOWN_OP", StatusCode::kNotFound, "nobodys_op"},
        Fault{"NEEDS_PLANNER", StatusCode::kInvalidArgument, "cannot tell padding from rows that count"},
        Fault{"NO_SPLIT", StatusCode::kInvalidArgument, "set split_by_default"},
        Fault{"BAD_NATIVE_FORM", StatusCode::kInvalidArgument, "sillu"},
        Fault{"IGNORES_ERROR", StatusCode::kInvalidArgument, "the table has no shape rule"},
        Fault{"DOUBLE_OP", StatusCode::kInvalidArgument, "fault_op"},
        Fault{"DOUBLE_KERNEL", StatusCode::kInvalidArgument, "was added already"}),
    [](const auto& fault) { return fault.param.name; });

TEST(CopyTable, ATableOfTheFirstVersionHasNullMembers) {
  Grown given{.size = offsetof(Grown, appended), .first = 7, .appended = &given};
  const Result<Grown> older = copy_table(&given, "table");
  ASSERT_TRUE(older.ok()) << older.status().to_string();
  EXPECT_EQ(older->size, sizeof(Grown));
  EXPECT_EQ(older->first, 7);
  EXPECT_EQ(older->appended, nullptr);

  given.size = sizeof(given);
  EXPECT_EQ(copy_table(&given, "table")->appended, &given);
  given.size = offsetof(Grown, appended) - 1;
  EXPECT_THAT(copy_table(&given, "table").status().message(), HasSubstr("the table's size is 15; 16 or more"));
}

// The expected sizes are written as numbers, because a change of the header must not change them. Only a new
// TESSERA_PLUGIN_ABI may change them.
TEST(CopyTable, FirstVersionsAreFrozen) {
  static_assert(TESSERA_PLUGIN_ABI == 1 && sizeof(void*) == 8);
  EXPECT_EQ(kFirstSize<tessera_plugin_info>, 32u);
  EXPECT_EQ(kFirstSize<tessera_plugin_operator>, 124u);
  EXPECT_EQ(kFirstSize<tessera_plugin_planner>, 32u);
  EXPECT_EQ(kFirstSize<tessera_plugin_kernel>, 88u);
  EXPECT_EQ(kFirstSize<tessera_plugin_device>, 272u);
  EXPECT_EQ(kFirstSize<tessera_plugin_compiler>, 48u);
  EXPECT_EQ(kFirstSize<tessera_plugin_pass>, 48u);
  EXPECT_EQ(kFirstSize<tessera_plugin_family>, 56u);
  EXPECT_EQ(kFirstSize<tessera_plugin_part>, 56u);
  EXPECT_EQ(kFirstSize<tessera_plugin_chat_format>, 88u);
}

// If another thread forks a process at the same moment, the forked process inherits the pipe and keeps it open.
// run_in_child() must return when its own child ends, and must not wait until the pipe is closed.
TEST(RunInChild, EndsWithTheChildDespiteAnOpenPipe) {
  const auto start = std::chrono::steady_clock::now();
  const auto leave_one_behind = [] {
    if (fork() == 0) {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      _exit(0);
    }
    return not_found("the child's own word");
  };
  const Status status = run_in_child(leave_one_behind, std::chrono::seconds(60));
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.to_string();
  EXPECT_EQ(status.message(), "the child's own word");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(2500));
}

TEST(LoadPlugins, ReportsAMissingFile) {
  Registry registry = built_in_registry();
  for (const char* file : {"", "/nowhere/x.so", "libtessera_nothing.so", TESSERA_TEST_PLUGINS}) {
    const Status status = add_plugin(file, registry);
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << file;
    EXPECT_THAT(status.message(), HasSubstr("there is no such file"));
  }
  const Status status = add_plugin(testing::source_path("README.md"), registry);
  EXPECT_THAT(status.message(), HasSubstr("it cannot be loaded"));
}

TEST(LoadPlugins, AValidPluginAddsItsParts) {
  const auto loaded = load_plugins({plugin_file("NONE")});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Registry& registry = **loaded;
  ASSERT_EQ(registry.plugins.size(), 1u);
  EXPECT_EQ(registry.plugins[0].name, "fault");
  EXPECT_EQ(registry.plugins[0].version, "1.0");
  EXPECT_NE(registry.plugins[0].content, Hash128{});
  EXPECT_NE(registry.ops.find("fault_op"), nullptr);
  EXPECT_NE((*registry.devices.kernels("cpu"))->find("fault_op"), nullptr);
  EXPECT_EQ(shared_built_ins()->ops.find("fault_op"), nullptr) << "the program's own registry is as it was";
}

TEST(LoadPlugins, APluginCannotBeLoadedTwice) {
  EXPECT_THAT(load_plugins({plugin_file("NONE"), plugin_file("NONE")}).status().message(),
              HasSubstr("a plugin named fault is loaded already"));
}

TEST(LoadPlugins, ASecondLibraryCannotClaimATakenName) {
  EXPECT_THAT(load_plugins({plugin_file("NONE"), plugin_file("RIVAL_OP")}).status().message(),
              AllOf(HasSubstr("fault_RIVAL_OP.so"), HasSubstr("an operator named 'fault_op' is registered already")));
  EXPECT_THAT(load_plugins({plugin_file("NONE"), plugin_file("RIVAL_KERNEL")}).status().message(),
              AllOf(HasSubstr("fault_RIVAL_KERNEL.so"),
                    HasSubstr("device cpu: a kernel for operator 'fault_op' was added already")));
}

}  // namespace
}  // namespace tessera::plugin
