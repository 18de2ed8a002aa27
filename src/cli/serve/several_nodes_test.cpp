// Catches: NVLink multicast that stays on although the user did not ask for it, and a change of NCCL_NVLS_ENABLE
// although NCCL is not used or the user has set the variable.
#include "tessera/cli/serve/several_nodes.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tessera::cli {
namespace {

constexpr const char* kMulticast = "NCCL_NVLS_ENABLE";

std::string multicast_after(const EngineOptions& options) {
  prepare_nodes(options);
  const char* const value = ::getenv(kMulticast);
  return value == nullptr ? "not set" : value;
}

TEST(SeveralNodes, MulticastIsOffUnlessAskedFor) {
  ::unsetenv(kMulticast);
  EXPECT_EQ(multicast_after({.device = "cuda", .nnodes = 1}), "not set");
  EXPECT_EQ(multicast_after({.device = "cpu", .nnodes = 2}), "not set");
  EXPECT_EQ(multicast_after({.device = "cuda:1", .nnodes = 2}), "0");
  ::setenv(kMulticast, "1", 1);
  EXPECT_EQ(multicast_after({.device = "cuda:1", .nnodes = 2}), "1");
  ::unsetenv(kMulticast);
}

}  // namespace
}  // namespace tessera::cli
