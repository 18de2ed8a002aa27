// The forward of a prefill is compiled in parts, which are pieces and split operators. `explain --graph` shows the
// program of one part (`program:N`), or all parts at all graph sizes (`entries`). Catches: a program that is shown with
// another layer's values; kernels that a program lacks; `entries` that lack a size or a part; a request for a part that
// does not exist, if it shows another part instead of an error.
#include "tessera/cli/inspect/shown_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/paths.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/engine/engine.h"

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ShownPrograms : public ::testing::Test {
 protected:
  ShownPrograms() {
    EngineOptions options;
    options.model_path = testing::data_path("goldens/llama");
    options.load_format = LoadFormat::kDummy;
    options.context_length = 64;
    options.max_total_tokens = 256;
    options.graphs.piecewise_tokens = {8, 32};
    plan_ = plan_engine(options, *device_).value();
  }
  Result<std::string> shown(std::string_view name) { return shown_program(plan_, *device_, name); }

  std::unique_ptr<CpuDevice> device_ = CpuDevice::create({.threads = 1}).value();
  EnginePlan plan_;
};

TEST_F(ShownPrograms, AProgramHasItsNamesAndKernels) {
  const Result<std::string> second = shown("program:4");
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_THAT(*second, AllOf(StartsWith("piece 4 of body, one of "), HasSubstr("\nprogram of "),
                             HasSubstr("weight %model.layers.1.mlp.down_proj.weight: "), HasSubstr("linear by "),
                             HasSubstr(" bytes\n")));
  EXPECT_EQ(*shown("program:4"), *second);
  EXPECT_THAT(*shown("program:1"), AllOf(StartsWith("split op 1: attention of body"), HasSubstr("attention by ")));
}

TEST_F(ShownPrograms, EntriesCoverEveryPartAtEverySize) {
  const std::string text = *shown("entries");
  for (const char* entry : {"piece 0 at T=8 ", "split op 1: attention at T=8 ", "piece 0 at T=32 "})
    EXPECT_THAT(text, HasSubstr(entry));
  EXPECT_THAT(text, AllOf(HasSubstr("use graph: no"), HasSubstr("outputs: %layers."), HasSubstr("at arena+0")));
}

TEST_F(ShownPrograms, APartThatDoesNotExistIsAnError) {
  for (const char* name : {"program:99", "program:", "program:-1", "program:1x"}) {
    const Status status = shown(name).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(name), HasSubstr("program:0 to program:")));
  }
  EXPECT_FALSE(names_program("programs"));
  EXPECT_FALSE(names_program("0"));
}

}  // namespace
}  // namespace tessera::cli
