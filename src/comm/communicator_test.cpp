// Catches: ranks that get different bits; sums that are added in the wrong order or rounded twice; data races between
// ranks (under ThreadSanitizer); a failing rank that leaves the other ranks waiting; ranks that make different calls or
// pass different sizes without an error.
#include "tessera/comm/communicator.h"

#include <gmock/gmock.h>

#include <thread>

#include "tessera/ir/testing/host_tensor.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

// Runs body(rank) on one thread for each rank.
template <class Body>
void run_on_threads(int ranks, const Body& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&body, r] { body(r); });
  for (std::thread& thread : threads) thread.join();
}

struct GroupCase {
  int ranks;
  DType dtype;
};

class Collectives : public ::testing::TestWithParam<GroupCase> {};

TEST_P(Collectives, AllReduceAddsInRankOrderOnEveryRank) {
  const auto [ranks, dtype] = GetParam();
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(ranks);
  for (const std::int64_t n : {0, 1, 5, 257, 5000}) {
    std::vector<HostTensor> x;
    for (int r = 0; r < ranks; ++r)
      x.push_back(random_tensor(dtype, {n}, static_cast<std::uint32_t>(r + 1), -100, 100));
    HostTensor expected = x[0];
    std::vector<double> exact(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
      float sum = 0;
      for (const HostTensor& t : x) sum += static_cast<float>(t.at(i)), exact[static_cast<std::size_t>(i)] += t.at(i);
      expected.set(i, static_cast<double>(sum));
    }
    run_on_threads(ranks, [&](int r) {
      HostTensor& own = x[static_cast<std::size_t>(r)];
      const Status status = group[static_cast<std::size_t>(r)]->all_reduce(own.view(DeviceAddress{own.bytes.data()}));
      EXPECT_TRUE(status.ok()) << status.message();
    });
    for (const HostTensor& t : x) EXPECT_EQ(t.bytes, expected.bytes);
    Tolerance allowed = tolerance(dtype);
    allowed.absolute += 1e-4;
    expect_close(x[0], exact, allowed, "all_reduce of " + std::to_string(n) + " over " + std::to_string(ranks));
  }
}

TEST_P(Collectives, AllGatherPutsColumnsInRankOrder) {
  const auto [ranks, dtype] = GetParam();
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(ranks);
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kCols = 5;
  std::vector<HostTensor> x;
  std::vector<HostTensor> y;
  for (int r = 0; r < ranks; ++r) {
    x.push_back(random_tensor(dtype, {kRows, kCols}, static_cast<std::uint32_t>(r + 1)));
    y.push_back(poisoned_tensor(dtype, {kRows, kCols * ranks}));
  }
  run_on_threads(ranks, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    const Status status =
        group[i]->all_gather(x[i].view(DeviceAddress{x[i].bytes.data()}), y[i].view(DeviceAddress{y[i].bytes.data()}));
    EXPECT_TRUE(status.ok()) << status.message();
  });
  for (const HostTensor& t : y)
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t j = 0; j < kCols * ranks; ++j)
        EXPECT_EQ(t.at(i * kCols * ranks + j), x[static_cast<std::size_t>(j / kCols)].at(i * kCols + j % kCols));
}

INSTANTIATE_TEST_SUITE_P(Groups, Collectives,
                         ::testing::Values(GroupCase{1, DType::kFloat32}, GroupCase{2, DType::kFloat32},
                                           GroupCase{3, DType::kBFloat16}, GroupCase{4, DType::kFloat16},
                                           GroupCase{7, DType::kFloat32}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + std::string(ir::dtype_name(test.param.dtype));
                         });

TEST(Collective, ManyCallsInARowGiveTheSum) {
  constexpr int kRanks = 3;
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(kRanks);
  run_on_threads(kRanks, [&](int r) {
    for (int i = 0; i < 500; ++i) {
      float x = static_cast<float>(r + i);
      const TensorView view{.data = reinterpret_cast<std::byte*>(&x), .rank = 1, .dims = {1}};
      ASSERT_TRUE(group[static_cast<std::size_t>(r)]->all_reduce(view).ok());
      ASSERT_EQ(x, static_cast<float>(3 * i + 3));
    }
  });
}

TEST(Collective, AbortReleasesTheOthers) {
  std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(3);
  run_on_threads(3, [&](int r) {
    Communicator& own = *group[static_cast<std::size_t>(r)];
    if (r == 2) {
      own.abort("out of memory");
      return;
    }
    float x = 1;
    const TensorView view{.data = reinterpret_cast<std::byte*>(&x), .rank = 1, .dims = {1}};
    const Status status = own.all_reduce(view);
    EXPECT_EQ(status.code(), StatusCode::kCancelled);
    EXPECT_THAT(status.message(), HasSubstr("rank 2 of 3 left the group: out of memory"));
    // The group stays aborted with the first reason.
    own.abort("another reason");
    EXPECT_THAT(own.all_reduce(view).message(), HasSubstr("out of memory"));
    EXPECT_THAT(own.status().message(), HasSubstr("out of memory"));
  });
}

TEST(Collective, ARestartedGroupWorksAgain) {
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(3);
  for (int round = 0; round < 20; ++round) {
    run_on_threads(3, [&](int r) {
      float x = 1;
      const TensorView view{.data = reinterpret_cast<std::byte*>(&x), .rank = 1, .dims = {1}};
      Communicator& own = *group[static_cast<std::size_t>(r)];
      if (r == round % 3) {
        own.abort("a fault");
      } else {
        EXPECT_EQ(own.all_reduce(view).code(), StatusCode::kCancelled);
      }
    });
    ASSERT_TRUE(group[0]->restart().ok());
    run_on_threads(3, [&](int r) {
      auto x = static_cast<float>(r);
      const TensorView view{.data = reinterpret_cast<std::byte*>(&x), .rank = 1, .dims = {1}};
      EXPECT_TRUE(group[static_cast<std::size_t>(r)]->all_reduce(view).ok());
      EXPECT_EQ(x, 3.0F);
    });
  }
}

TEST(Collective, TheErrorNamesARankThatDoesNotArrive) {
  const std::vector<std::unique_ptr<Communicator>> group =
      Communicator::create_group(3, std::chrono::milliseconds(1500));
  run_on_threads(3, [&](int r) {
    float x = 1;
    const TensorView view{.data = reinterpret_cast<std::byte*>(&x), .rank = 1, .dims = {1}};
    EXPECT_TRUE(group[static_cast<std::size_t>(r)]->all_reduce(view).ok());
    if (r == 1) return;
    const Status status = group[static_cast<std::size_t>(r)]->all_reduce(view);
    EXPECT_EQ(status.code(), StatusCode::kCancelled);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 of 3 did not come to all_reduce within 1.5 s"));
  });
}

TEST(Collective, DestroyingACommunicatorAborts) {
  std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(2);
  run_on_threads(2, [&](int r) {
    if (r == 1) {
      group[1].reset();
      return;
    }
    float x = 1;
    const TensorView view{.data = reinterpret_cast<std::byte*>(&x), .rank = 1, .dims = {1}};
    EXPECT_THAT(group[0]->all_reduce(view).message(), HasSubstr("rank 1 of 2 left the group"));
  });
}

// An abort may happen at any time. All ranks must then return from the collective. A rank must not return while another
// rank still uses its memory.
TEST(Collective, AbortAtAnyTimeReleasesAllRanks) {
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(3);
    std::thread outside([&] { group[1]->abort("from outside"); });
    run_on_threads(3, [&](int r) {
      for (int i = 0; i < 20; ++i) {
        std::vector<float> x(300, 1.0f);
        const TensorView view{.data = reinterpret_cast<std::byte*>(x.data()), .rank = 1, .dims = {300}};
        if (!group[static_cast<std::size_t>(r)]->all_reduce(view).ok()) return;
      }
    });
    outside.join();
    EXPECT_FALSE(group[0]->status().ok());
  }
}

TEST(Collective, RanksThatDisagreeGetAnError) {
  std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(2);
  run_on_threads(2, [&](int r) {
    std::vector<float> x(8, 1.0f);
    const TensorView view{.data = reinterpret_cast<std::byte*>(x.data()), .rank = 1, .dims = {r == 0 ? 4 : 8}};
    EXPECT_THAT(group[static_cast<std::size_t>(r)]->all_reduce(view).message(),
                HasSubstr("rank 0 is in all_reduce with 4 elements f32, rank 1 in all_reduce with 8 f32"));
  });
  EXPECT_FALSE(group[0]->status().ok());
}

}  // namespace
}  // namespace tessera::testing
