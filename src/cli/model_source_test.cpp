// Catches: a command that runs an engine without the cache folder, so that every start repeats its measurements.
#include "tessera/cli/model_source.h"

#include <gtest/gtest.h>

#include <variant>

namespace tessera::cli {
namespace {

TEST(ModelSource, ReachesEveryCommandWithAnEngine) {
  Command serve = ServeOptions{};
  use_cache_dir(serve);
  EXPECT_EQ(std::get<ServeOptions>(serve).engine.cache_dir, cache_dir());
}

}  // namespace
}  // namespace tessera::cli
