// A command that runs an engine and is not told the cache folder: every start would measure again.
#include "tessera/cli/model_source.h"

#include <gtest/gtest.h>

#include <variant>

namespace tessera::cli {
namespace {

TEST(ModelSource, ReachesWhatRunsAnEngine) {
  Command serve = ServeOptions{};
  use_cache_dir(serve);
  EXPECT_EQ(std::get<ServeOptions>(serve).engine.cache_dir, cache_dir());
}

}  // namespace
}  // namespace tessera::cli
