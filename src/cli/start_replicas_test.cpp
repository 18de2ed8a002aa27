// Catches: replicas that are opened on the same GPU, or on one that was not asked for.
#include "tessera/cli/start_replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(StartReplicas, FollowTheFirstDevice) {
  EXPECT_EQ(replica_device("cuda", 0), "cuda:0");
  EXPECT_EQ(replica_device("cuda", 3), "cuda:3");
  EXPECT_EQ(replica_device("cuda:2", 1), "cuda:3");
  EXPECT_EQ(replica_device("cuda:2,sm_80", 2), "cuda:4,sm_80");
  EXPECT_EQ(replica_device("cuda,sm_80", 1), "cuda:1,sm_80");
  EXPECT_EQ(replica_device("cpu", 3), "cpu");
  EXPECT_EQ(replica_device("cudalike", 1), "cudalike");
}

TEST(StartReplicas, AnErrorNamesTheReplica) {
  const auto engines = start_replicas({.model_path = "/nowhere"}, 2);
  EXPECT_THAT(engines.status().message(), ::testing::HasSubstr("replica 0 of 2"));
  EXPECT_THAT(engines.status().message(), ::testing::HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace tessera::cli
