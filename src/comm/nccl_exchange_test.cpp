// Catches: ranks that do not use the NCCL id of rank 0; a rank that continues although the ranks' settings differ; a
// start that waits for ever; a communicator that is not aborted when its group ends, so that kernels and calls wait for
// ever; a communicator that is used after its group has ended; and a library that is used although it is too old or
// lacks a function. The tests run over connections of two nodes, with a fake NCCL that moves no data
// (testing/fake_nccl.h).
#include "tessera/comm/nccl_exchange.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/comm/testing/fake_nccl.h"
#include "tessera/comm/testing/nodes.h"

namespace tessera::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Exchanges = std::vector<Result<std::shared_ptr<NcclExchange>>>;

constexpr int kRemoteError = 6;

class Nccl : public ::testing::Test {
 protected:
  Nccl() : library_(dlopen(TESSERA_FAKE_NCCL, RTLD_NOW)) {
    if (library_ == nullptr) return;  // the test program was moved without the library
    auto* const find = reinterpret_cast<FakeNccl& (*)()>(dlsym(library_, kFakeNccl));
    fake_ = &find();
    fake_->version = 22809;
    fake_->init_errors.clear();
    fake_->reduce_hangs.clear();
    fake_->async_errors.clear();
    fake_->calls.clear();
    fake_->ids = 6;
  }
  ~Nccl() override {
    if (library_ != nullptr) release();
  }
  void SetUp() override {
    if (library_ == nullptr) GTEST_SKIP() << "needs " << TESSERA_FAKE_NCCL;
  }

  // Every communicator takes kTaken bytes of its GPU's memory.
  static constexpr std::int64_t kTaken = 600;
  static NcclExchange::Place place(int rank) {
    return {.gpu = [rank]() -> Result<std::string> { return "GPU-" + std::to_string(rank); },
            .make_current = ok_status,
            .available =
                [] {
                  thread_local bool is_made = true;
                  return (is_made = !is_made) ? 1000 - kTaken : 1000;
                },
            .library = TESSERA_FAKE_NCCL};
  }
  // Makes the exchanges of all ranks at the same time.
  template <class PlaceOf>
  Exchanges open(Nodes& nodes, const PlaceOf& place_of) {
    Exchanges made(nodes.ranks.size(), Result<std::shared_ptr<NcclExchange>>(internal_error("not made")));
    run_ranks(static_cast<int>(nodes.ranks.size()), [&](int rank) {
      made[static_cast<std::size_t>(rank)] = NcclExchange::of(nodes.rank(rank), place_of(rank));
    });
    return made;
  }
  Exchanges open(Nodes& nodes) { return open(nodes, place); }

  std::vector<std::string> calls() {
    const std::lock_guard lock(fake_->mutex);
    return fake_->calls;
  }
  // Waits until the fake library has recorded `call`. Returns false after 10 s.
  bool comes_to(const std::string& call) {
    std::unique_lock lock(fake_->mutex);
    return fake_->moved.wait_for(lock, std::chrono::seconds(10),
                                 [&] { return std::ranges::find(fake_->calls, call) != fake_->calls.end(); });
  }
  template <class Change>
  void change(const Change& with) {
    const std::lock_guard lock(fake_->mutex);
    with(*fake_);
    fake_->moved.notify_all();
  }
  void release() {
    change([](FakeNccl& fake) {
      fake.init_hangs = false;
      fake.reduce_hangs.clear();
    });
  }
  // Waits until the rank's group has ended. Returns false after 10 s.
  static bool comes_to_its_end(const Communicator& rank) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (rank.status().ok() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(1));
    return !rank.status().ok();
  }

  void* library_;
  FakeNccl* fake_ = nullptr;
};

TensorView values(std::vector<float>& x, ir::DType dtype) {
  return {.data = reinterpret_cast<std::byte*>(x.data()),
          .dtype = dtype,
          .rank = 2,
          .dims = {2, static_cast<std::int64_t>(x.size()) / 2}};
}

TEST_F(Nccl, AllRanksOfAllNodesShareOneCommunicator) {
  const std::unique_ptr<Nodes> nodes = make_nodes(2, 4);
  {
    const Exchanges made = open(*nodes);
    for (const auto& exchange : made) ASSERT_TRUE(exchange.ok()) << exchange.status().message();
    EXPECT_THAT(calls(),
                UnorderedElementsAre("init 0 of 4 id 7", "init 1 of 4 id 7", "init 2 of 4 id 7", "init 3 of 4 id 7"));
    EXPECT_EQ((*made[3])->ranks(), 4);
    EXPECT_EQ(nodes->rank(3).device_state().bytes(), kTaken);
    EXPECT_EQ((*made[3])->library().version_text(), "2.28.9");
    // If the exchange exists already, of() returns at once.
    EXPECT_EQ(NcclExchange::of(nodes->rank(2), place(2)).value(), *made[2]);
    std::vector<float> x(16);
    change([](FakeNccl& fake) { fake.calls.clear(); });
    ASSERT_TRUE((*made[1])->all_reduce(values(x, ir::DType::kFloat32), nullptr).ok());
    ASSERT_TRUE((*made[1])->all_reduce(values(x, ir::DType::kBFloat16), nullptr).ok());
    ASSERT_TRUE((*made[1])->all_reduce(values(x, ir::DType::kFloat16), nullptr).ok());
    ASSERT_TRUE((*made[2])->all_gather({}, {}, 24, nullptr).ok());
    ASSERT_TRUE((*made[2])->all_gather({}, {}, 0, nullptr).ok());
    std::vector<float> all(4 * x.size());
    ASSERT_TRUE(
        (*made[3])->reduce_scatter(values(all, ir::DType::kBFloat16), values(x, ir::DType::kBFloat16), nullptr).ok());
    EXPECT_EQ((*made[1])->all_reduce(values(x, ir::DType::kInt32), nullptr).code(), StatusCode::kUnimplemented);
    EXPECT_THAT(calls(), ::testing::ElementsAre("all_reduce 1: 16 of type 7", "all_reduce 1: 16 of type 9",
                                                "all_reduce 1: 16 of type 6", "all_gather 2: 24 of type 1",
                                                "reduce_scatter 3: 16 of type 9"));
    change([](FakeNccl& fake) { fake.calls.clear(); });
  }
  EXPECT_THAT(calls(), ::testing::IsEmpty());
}

// The processes of a group are told one after another that the group has ended. If a rank that ends by itself waited in
// NCCL for the other processes, it would wait for processes that have not been told yet. The rank must not wait.
TEST_F(Nccl, ARankThatEndsByItselfIsNotAborted) {
  const std::unique_ptr<Nodes> nodes = make_nodes(2, 2);
  {
    const Exchanges made = open(*nodes);
    ASSERT_TRUE(made[0].ok() && made[1].ok());
    nodes->rank(0).abort("the model is given up");
    ASSERT_TRUE(comes_to_its_end(nodes->rank(1)));
    std::vector<float> x(2);
    EXPECT_EQ((*made[1])->all_reduce(values(x, ir::DType::kFloat32), nullptr).code(), StatusCode::kCancelled);
    change([](FakeNccl& fake) { fake.calls.clear(); });
  }
  EXPECT_THAT(calls(), ::testing::IsEmpty());
}

// If kernels wait for a GPU of a lost node, only an abort ends them.
TEST_F(Nccl, ALostNodeAbortsTheOthers) {
  const std::unique_ptr<Nodes> nodes = make_nodes(2, 2);
  const Exchanges made = open(*nodes);
  ASSERT_TRUE(made[0].ok() && made[1].ok());
  nodes->groups[1]->leave(device_lost("its machine has gone"));
  EXPECT_TRUE(comes_to("abort 0"));
  std::vector<float> x(2);
  EXPECT_EQ((*made[0])->all_reduce(values(x, ir::DType::kFloat32), nullptr).code(), StatusCode::kCancelled);
  EXPECT_EQ((*made[0])->all_gather({}, {}, 8, nullptr).code(), StatusCode::kCancelled);
  EXPECT_EQ(nodes->rank(0).restart().code(), StatusCode::kFailedPrecondition);
}

// In NCCL, the first call with a tensor size connects GPUs. This call hangs if the other GPU's node is lost.
TEST_F(Nccl, AnAbortEndsACallThatHangs) {
  const std::unique_ptr<Nodes> nodes = make_nodes(2, 2);
  const Exchanges made = open(*nodes);
  ASSERT_TRUE(made[0].ok() && made[1].ok());
  change([](FakeNccl& fake) { fake.reduce_hangs = {0}; });
  std::thread caller([&] {
    std::vector<float> x(2);
    (void)(*made[0])->all_reduce(values(x, ir::DType::kFloat32), nullptr);
  });
  EXPECT_TRUE(comes_to("all_reduce 0: 2 of type 7"));
  nodes->groups[1]->leave(device_lost("its machine has gone"));
  EXPECT_TRUE(comes_to("abort 0"));
  release();  // makes the test end even if there was no abort
  caller.join();
}

TEST_F(Nccl, AConnectionThatNcclLosesEndsTheGroup) {
  const std::unique_ptr<Nodes> nodes = make_nodes(2, 2);
  const Exchanges made = open(*nodes);
  ASSERT_TRUE(made[0].ok() && made[1].ok());
  change([](FakeNccl& fake) { fake.async_errors[1] = kRemoteError; });
  EXPECT_TRUE(comes_to("abort 0"));
  EXPECT_TRUE(comes_to("abort 1"));
  for (const auto& rank : nodes->ranks)
    EXPECT_THAT(rank->status().message(),
                AllOf(HasSubstr("rank 1 of 2"), HasSubstr("NCCL: remote process exited"), HasSubstr("socket closed")));
}

TEST_F(Nccl, IncompatibleRanksAreNamed) {
  const std::unique_ptr<Nodes> nodes = make_nodes(2, 2);
  const Exchanges made = open(*nodes, [](int) { return place(3); });
  for (const auto& exchange : made)
    EXPECT_THAT(exchange.status().message(),
                HasSubstr("ranks 0 and 1 are both on GPU GPU-3; each needs one of its own"));
  EXPECT_THAT(calls(), ::testing::IsEmpty());
}

TEST_F(Nccl, ARefusedRankEndsTheStartOfAll) {
  change([](FakeNccl& fake) { fake.init_errors[1] = kRemoteError; });
  const std::unique_ptr<Nodes> nodes = make_nodes(2, 2);
  const Exchanges made = open(*nodes);
  EXPECT_EQ(made[1].status().code(), StatusCode::kDeviceLost);
  EXPECT_THAT(made[1].status().message(), HasSubstr("ncclCommInitRank: remote process exited: socket closed"));
  ASSERT_TRUE(comes_to_its_end(nodes->rank(0)));
  EXPECT_THAT(nodes->rank(0).status().message(), HasSubstr("ncclCommInitRank: remote process exited"));
}

// NCCL has no timeout, so without the communicator's time limit it would wait for ever for a rank that is gone.
TEST_F(Nccl, AStartThatHangsEndsAtTheLimit) {
  change([](FakeNccl& fake) { fake.init_hangs = true; });
  const std::unique_ptr<Nodes> nodes = make_nodes(2, 2, milliseconds(2000));
  const Exchanges made = open(*nodes);
  for (const auto& exchange : made) EXPECT_EQ(exchange.status().code(), StatusCode::kCancelled);
  EXPECT_THAT(nodes->rank(0).status().message(),
              AllOf(HasSubstr("is not connected to the others by NCCL within 2 s"), HasSubstr("NCCL_SOCKET_IFNAME")));
  release();  // a communicator that completes too late is aborted
  EXPECT_TRUE(comes_to("abort 0"));
  EXPECT_TRUE(comes_to("abort 1"));
}

TEST_F(Nccl, ANodeLostDuringTheStartEndsIt) {
  change([](FakeNccl& fake) { fake.init_hangs = true; });
  const std::unique_ptr<Nodes> nodes = make_nodes(2, 2);
  std::thread lost([&] {
    EXPECT_TRUE(comes_to("init 0 of 2 id 7"));
    EXPECT_TRUE(comes_to("init 1 of 2 id 7"));
    nodes->groups[1]->leave(device_lost("its machine has gone"));
  });
  const Exchanges made = open(*nodes);
  lost.join();
  EXPECT_EQ(made[0].status().code(), StatusCode::kCancelled);
  EXPECT_THAT(made[0].status().message(), HasSubstr("its machine has gone"));
  release();  // communicators that complete too late are aborted, on both nodes
  EXPECT_TRUE(comes_to("abort 0"));
  EXPECT_TRUE(comes_to("abort 1"));
}

// With three stages on three nodes, each link has a separate communicator. The sender is its first rank.
TEST_F(Nccl, EveryLinkBetweenStagesHasACommunicatorOfTwo) {
  const std::unique_ptr<Nodes> nodes = make_stage_nodes(3, {.tp_size = 1, .pp_size = 3});
  {
    Exchanges sends(3, Result<std::shared_ptr<NcclExchange>>(internal_error("not made")));
    Exchanges receives = sends;
    run_ranks(3, [&](int rank) {  // each rank receives before it sends
      const auto at = static_cast<std::size_t>(rank);
      if (rank < 2) receives[at] = NcclExchange::link(nodes->rank(rank), /*to_next=*/false, place(rank));
      if (rank > 0) sends[at] = NcclExchange::link(nodes->rank(rank), /*to_next=*/true, place(rank));
    });
    for (const std::size_t rank : {0U, 1U}) ASSERT_TRUE(receives[rank].ok()) << receives[rank].status().message();
    for (const std::size_t rank : {1U, 2U}) ASSERT_TRUE(sends[rank].ok()) << sends[rank].status().message();
    EXPECT_NE(*sends[1], *receives[1]);
    EXPECT_EQ(nodes->rank(0).device_state().bytes(), kTaken);
    EXPECT_EQ(nodes->rank(1).device_state().bytes(), 2 * kTaken) << "it has both links";
    EXPECT_EQ(NcclExchange::link(nodes->rank(1), true, place(1)).value(), *sends[1]) << "it is there already";
    EXPECT_THAT(calls(),
                UnorderedElementsAre("init 0 of 2 id 7", "init 1 of 2 id 7", "init 0 of 2 id 8", "init 1 of 2 id 8"));
    change([](FakeNccl& fake) { fake.calls.clear(); });
    std::vector<float> x(6);
    EXPECT_TRUE((*sends[2])->hand_on(values(x, ir::DType::kFloat32), nullptr).ok());
    EXPECT_TRUE((*receives[1])->hand_on(values(x, ir::DType::kFloat32), nullptr).ok());
    EXPECT_THAT(calls(), ::testing::ElementsAre("send 0 to 1: 24 of type 1", "receive 1 from 0: 24 of type 1"));
    EXPECT_EQ(nodes->rank(0).restart().code(), StatusCode::kFailedPrecondition) << "kernels take part";
  }
}

TEST_F(Nccl, IncompatibleLinkSidesAreNamedByTheirRanks) {
  const std::unique_ptr<Nodes> nodes = make_stage_nodes(2, {.tp_size = 2, .pp_size = 2});
  run_ranks(4, [&](int rank) {
    const auto linked = NcclExchange::link(nodes->rank(rank), /*to_next=*/rank > 1, place(rank % 2));
    EXPECT_FALSE(linked.ok());
  });
  EXPECT_THAT(nodes->rank(0).status().message(), HasSubstr("are both on GPU GPU-"));
  EXPECT_THAT(nodes->rank(0).status().message(),
              ::testing::AnyOf(HasSubstr("ranks 0 and 2"), HasSubstr("ranks 2 and 0"), HasSubstr("ranks 1 and 3"),
                               HasSubstr("ranks 3 and 1")));
}

// If a GPU waits in a link for a lost node, an abort ends this wait.
TEST_F(Nccl, ALostNodeAbortsTheLinksToIt) {
  const std::unique_ptr<Nodes> nodes = make_stage_nodes(2, {.tp_size = 1, .pp_size = 2});
  Exchanges made(2, Result<std::shared_ptr<NcclExchange>>(internal_error("not made")));
  run_ranks(2, [&](int rank) {
    made[static_cast<std::size_t>(rank)] = NcclExchange::link(nodes->rank(rank), rank == 1, place(rank));
  });
  ASSERT_TRUE(made[0].ok() && made[1].ok());
  nodes->groups[1]->leave(device_lost("its machine has gone"));
  EXPECT_TRUE(comes_to("abort 1"));
  std::vector<float> x(2);
  EXPECT_EQ((*made[0])->hand_on(values(x, ir::DType::kFloat32), nullptr).code(), StatusCode::kCancelled);
}

TEST_F(Nccl, AMissingLibraryIsNamedWithItsSource) {
  const Status absent = NcclLibrary::open("libnccl-of-nobody.so.2").status();
  EXPECT_EQ(absent.code(), StatusCode::kNotFound);
  EXPECT_THAT(absent.message(), AllOf(HasSubstr("libnccl-of-nobody.so.2"), HasSubstr("cannot open shared object file"),
                                      HasSubstr("libnccl2"), HasSubstr("nvidia-nccl-cu12")));
}

TEST_F(Nccl, AnOldOrOtherLibraryIsRefused) {
  EXPECT_THAT(NcclLibrary::open(TESSERA_FAKE_NCCL_WITHOUT_ALL_GATHER).status().message(),
              AllOf(HasSubstr("has no function ncclAllGather"), HasSubstr("NCCL 2.16.0")));
  change([](FakeNccl& fake) { fake.version = 21205; });
  EXPECT_THAT(NcclLibrary::open(TESSERA_FAKE_NCCL).status().message(),
              HasSubstr("is NCCL 2.12.5; 2.16.0 and later are accepted"));
}

}  // namespace
}  // namespace tessera::testing
