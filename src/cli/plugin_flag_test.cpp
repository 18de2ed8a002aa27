// Catches: a plugin that is loaded too late, after the flags that name its devices or compilers were read; plugins that
// are loaded in another order than given; a plugin's error that is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/cli/parse.h"
#include "tessera/device/testing/environment.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;

const std::string kLlama = testing::data_path("goldens/llama");

// A flag at any position of the command line may name a device or compiler that a plugin adds.
TEST(PluginFlag, LoadsInOrderBeforeAnythingIsNamed) {
  const auto registry = std::make_shared<Registry>(built_in_registry());
  std::vector<std::string> loaded;
  const auto load = [&](const std::string& file) -> Status {
    loaded.push_back(file);
    if (file == "broken.so") return invalid_argument("plugin broken.so: it crashed");
    return registry->compilers.add(
        file, [](const CompilerContext&) -> Result<std::unique_ptr<Compiler>> { return unimplemented("not here"); });
  };
  const std::vector<std::string> words = {
      "serve", "--piecewise-cuda-graph-compiler", "b.so", "--model-path", kLlama, "--plugin", "a.so", "--plugin",
      "b.so"};
  const Result<CommandLine> line = parse_command_line(registry, words, load);
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_EQ(std::get<ServeOptions>(line->command).engine.graphs.compiler, "b.so");
  EXPECT_THAT(loaded, ElementsAre("a.so", "b.so"));

  EXPECT_EQ(parse_command_line(registry, {"serve", "--plugin", "broken.so"}, load).status().message(),
            "--plugin: plugin broken.so: it crashed");
  EXPECT_EQ(parse_command_line(registry, {"serve", "--plugin", "a.so"}).status().message(),
            "--plugin: this program loads no plugins");
}

}  // namespace
}  // namespace tessera::cli
