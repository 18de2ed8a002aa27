// Catches: a function of a plugin's model family whose exception is dropped without a warning.
#include "tessera/plugin/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace tessera::plugin {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void throw_name(void* /*self*/, const char* /*name*/, const tessera_plugin_text* /*out*/) {
  throw std::runtime_error("no name today");
}

TEST(PluginFamily, ATensorsNameThatThrowsStaysWithAWarning) {
  tessera_plugin_family table{};
  table.size = sizeof(table);
  table.architecture = "NamelessForCausalLM";
  table.base = "Qwen3ForCausalLM";
  table.tensor = throw_name;
  const ModelFamily family = make_plugin_family(&table, built_in_families()).value();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(family.tensor_name("model.norm.weight"), "model.norm.weight");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("NamelessForCausalLM"), HasSubstr("model.norm.weight"), HasSubstr("no name today")));
}

}  // namespace
}  // namespace tessera::plugin
