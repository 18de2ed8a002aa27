// Tests collectives on the device under test. Catches: results that differ from the sum in rank order; values of an
// earlier call that are mistaken for values of this call (also in replays); wrong results after calls of other sizes;
// ranks that wait forever for a rank that has failed. On GPUs each rank needs its own GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <latch>
#include <thread>

#include "tessera/comm/communicator.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/collective/collective.h"
#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/embedding/embedding.h"
#include "tessera/ops/testing/ranks.h"

namespace tessera::testing {
namespace {

using ir::DType;

// One rank: its device, its stream and its bound operators. The members are destroyed in reverse order, so each is
// declared after those that it uses.
class Rank {
 public:
  static Result<std::unique_ptr<Rank>> create(Communicator& communicator) {
    std::unique_ptr<Rank> rank(new Rank);
    rank->device_ = TRY(open_rank_device(communicator));
    rank->stream_ = TRY(rank->device_->create_stream("rank"));
    rank->context_.communicator = &communicator;
    return rank;
  }
  Stream& stream() { return *stream_; }

  Result<TensorView> place(const HostTensor& t) {
    memory_.push_back(TRY(device_->allocate(t.bytes.size(), "test tensor")));
    return t.view(memory_.back()->data());
  }
  Status upload(const TensorView& to, const HostTensor& t) {
    return stream_->upload(to.data, t.bytes.data(), t.bytes.size());
  }
  Result<HostTensor> download(const TensorView& from) {
    HostTensor t = poisoned_tensor(from.dtype, {from.dims.begin(), from.dims.begin() + from.rank});
    TRY(stream_->download(t.bytes.data(), from.data, t.bytes.size()));
    TRY(stream_->synchronize());
    return t;
  }
  Status bind(const ir::OpDecl& decl, const std::vector<TensorView>& operands, const std::vector<TensorView>& results,
              ir::Attributes attributes = {}) {
    const ir::Node& node = keep(make_node(decl, operands.size(), std::move(attributes)));
    const KernelTable& kernels = *TRY(test_devices().kernels(device_->properties().type));
    const KernelDef& kernel = *TRY(kernels.get(decl.name));
    bound_.push_back(TRY(kernel.bind({node, operands, results, {}, *device_, context_})));
    return ok_status();
  }
  Status run(const ir::OpDecl& decl, const std::vector<TensorView>& operands, const std::vector<TensorView>& results,
             ir::Attributes attributes = {}) {
    TRY(bind(decl, operands, results, std::move(attributes)));
    return bound_.back()->enqueue(*stream_);
  }
  // Binds all_reduce(x) followed by add_rms_norm.
  Result<std::unique_ptr<BoundOp>> bind_joined(const JoinedKernelDef& joined, const TensorView& x,
                                               const std::vector<TensorView>& operands,
                                               const std::vector<TensorView>& results, ir::Attributes attributes) {
    const ir::Node& reduce = keep(make_node(kAllReduce, 1, {}));
    const ir::Node& norm = keep(make_node(**built_in_ops().get("add_rms_norm"), 3, std::move(attributes)));
    const std::array<BindArgs, 2> calls{BindArgs{reduce, {&x, 1}, {}, {}, *device_, context_},
                                        BindArgs{norm, operands, results, {}, *device_, context_}};
    return joined.bind(calls);
  }
  Status enqueue() {
    for (const auto& op : bound_) TRY(op->enqueue(*stream_));
    return ok_status();
  }
  Result<std::unique_ptr<RecordedGraph>> record() {
    TRY(stream_->begin_recording("collectives"));
    TRY(enqueue());
    return stream_->end_recording();
  }

 private:
  Rank() = default;
  const ir::Node& keep(ir::Node node) {
    nodes_.push_back(std::make_unique<ir::Node>(std::move(node)));
    return *nodes_.back();
  }
  std::unique_ptr<Device> device_;
  ForwardContext context_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Allocation>> memory_;
  std::vector<std::unique_ptr<ir::Node>> nodes_;
  std::vector<std::unique_ptr<BoundOp>> bound_;
};

// Runs body(rank number, rank) → Status on a thread for each rank. No rank is destroyed before all have run.
template <class Body>
void run_group(int ranks, const Body& body) {
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(ranks);
  std::latch all_done(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Communicator& own = *group[static_cast<std::size_t>(r)];
      Result<std::unique_ptr<Rank>> rank = Rank::create(own);
      const Status status = rank.ok() ? body(r, **rank) : rank.status();
      if (!status.ok()) own.abort(status.message());
      EXPECT_TRUE(status.ok()) << "rank " << r << ": " << status.to_string();
      all_done.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

HostTensor data_of(DType dtype, std::vector<std::int64_t> dims, int rank, int round) {
  HostTensor t = random_tensor(dtype, std::move(dims), static_cast<std::uint32_t>(1000 * round + rank + 1), -8, 8);
  for (std::int64_t i = 0; i < t.size(); i += 7) t.set(i, i % 2 == 0 ? -0.0 : 0.0);
  return t;
}

// Returns the sum over the ranks, added in rank order in float32 and rounded once. All zeros of the sum are positive,
// because the addition starts from +0.
std::vector<double> sum_of(DType dtype, const std::vector<std::int64_t>& dims, int ranks, int round) {
  std::vector<float> sum;
  for (int r = 0; r < ranks; ++r) {
    const std::vector<double> x = data_of(dtype, dims, r, round).values();
    sum.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] += static_cast<float>(x[i]);
  }
  HostTensor rounded = poisoned_tensor(dtype, dims);
  for (std::size_t i = 0; i < sum.size(); ++i) rounded.set(static_cast<std::int64_t>(i), static_cast<double>(sum[i]));
  return rounded.values();
}
std::vector<double> columns_of(DType dtype, const std::vector<std::int64_t>& dims, int ranks, int round) {
  std::vector<std::vector<double>> of_rank;
  for (int r = 0; r < ranks; ++r) of_rank.push_back(data_of(dtype, dims, r, round).values());
  std::vector<double> all;
  for (std::int64_t row = 0; row < dims[0]; ++row)
    for (const std::vector<double>& x : of_rank)
      for (std::int64_t i = 0; i < dims[1]; ++i) all.push_back(x[static_cast<std::size_t>(row * dims[1] + i)]);
  return all;
}

struct Group {
  int ranks;
  DType dtype;
};
class CollectiveRanks : public ::testing::TestWithParam<Group> {
 protected:
  void SetUp() override {
    if (!has_devices_for(GetParam().ranks)) GTEST_SKIP() << "needs " << GetParam().ranks << " GPUs";
  }
};

// Some rows have a multiple of 16 bytes, and other rows only a multiple of 4 bytes. Some sizes need one block, some
// many blocks, and some are larger than a mailbox.
TEST_P(CollectiveRanks, RepeatedCallsOfEverySizeGiveTheSum) {
  const auto [ranks, dtype] = GetParam();
  std::vector<std::vector<std::int64_t>> sizes = {{1, 2}, {3, 64}, {1, 4096}, {7, 130}, {2, 8}};
  if (on_cuda()) sizes.insert(sizes.end(), {{64, 4096}, {2048, 6144}, {1, 8}});
  run_group(ranks, [&](int r, Rank& rank) -> Status {
    std::vector<TensorView> summed;
    std::vector<TensorView> mine;
    std::vector<TensorView> gathered;
    for (const auto& dims : sizes) {
      summed.push_back(TRY(rank.place(poisoned_tensor(dtype, dims))));
      mine.push_back(TRY(rank.place(poisoned_tensor(dtype, dims))));
      gathered.push_back(TRY(rank.place(poisoned_tensor(dtype, {dims[0], dims[1] * ranks}))));
      TRY(rank.bind(kAllReduce, {summed.back()}, {}));
      TRY(rank.bind(kAllGather, {mine.back()}, {gathered.back()}, {{"ranks", std::int64_t{ranks}}}));
    }
    const std::unique_ptr<RecordedGraph> graph = TRY(rank.record());
    // Large sizes are checked in two rounds, one eager and one with the graph. Other sizes are checked in all five
    // rounds, because computing the expected sums takes little time for them.
    const auto is_done = [&](std::size_t i, int round) { return round >= (sizes[i][0] >= 1024 ? 2 : 5); };
    for (int round = 0; round < 5; ++round) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (is_done(i, round)) continue;
        TRY(rank.upload(summed[i], data_of(dtype, sizes[i], r, round)));
        TRY(rank.upload(mine[i], data_of(dtype, sizes[i], r, round)));
      }
      TRY(round % 2 == 0 ? rank.enqueue() : graph->launch(rank.stream()));
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (is_done(i, round)) continue;
        EXPECT_EQ(TRY(rank.download(summed[i])).values(), sum_of(dtype, sizes[i], ranks, round))
            << "rank " << r << ", size " << i << ", round " << round;
        EXPECT_EQ(TRY(rank.download(gathered[i])).values(), columns_of(dtype, sizes[i], ranks, round))
            << "rank " << r << ", size " << i << ", round " << round;
      }
    }
    return ok_status();
  });
}

// The host does not wait between the calls, so only the calls themselves keep the ranks in step.
TEST_P(CollectiveRanks, ManyCallsInARowGiveTheSum) {
  const auto [ranks, dtype] = GetParam();
  const std::vector<std::int64_t> dims = {2, 256};
  run_group(ranks, [&](int, Rank& rank) -> Status {
    const TensorView x = TRY(rank.place(poisoned_tensor(dtype, dims)));
    TRY(rank.bind(kAllReduce, {x}, {}));
    TRY(rank.upload(x, filled_tensor(dtype, dims, 0.0)));
    // Each call multiplies the value by the number of ranks. The value 0 stays 0, whereas an error in one word would
    // grow with every call.
    const int calls = on_cuda() ? 2000 : 100;  // on a CPU all ranks share the cores
    for (int call = 0; call < calls; ++call) TRY(rank.enqueue());
    EXPECT_EQ(TRY(rank.download(x)).values(), filled_tensor(dtype, dims, 0.0).values());
    TRY(rank.upload(x, filled_tensor(dtype, dims, 1.0)));
    for (int call = 0; call < 3; ++call) TRY(rank.enqueue());
    EXPECT_EQ(TRY(rank.download(x)).values(), filled_tensor(dtype, dims, ranks * ranks * ranks).values());
    return ok_status();
  });
}

// Each rank looks up ids in its slice of an embedding table. The sum over the ranks must equal the rows that a lookup
// in the whole table gives. This must also hold for a token that uses a row of `given` instead of a row of the table.
TEST_P(CollectiveRanks, SlicesOfATableGiveItsRows) {
  const auto [ranks, dtype] = GetParam();
  const std::int64_t rows = 6;
  const std::int64_t all = rows * ranks;
  const std::vector<std::int64_t> dims = {all + 1, 64};
  std::vector<std::int32_t> ids(static_cast<std::size_t>(all + 1));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);  // the last id has no row
  std::vector<std::int32_t> from(ids.size(), -1);
  from[2] = 1;
  run_group(ranks, [&](int r, Rank& rank) -> Status {
    const auto placed = [&](const HostTensor& t) -> Result<TensorView> {
      const TensorView view = TRY(rank.place(t));
      TRY(rank.upload(view, t));
      return view;
    };
    const HostTensor table = data_of(dtype, {all, dims[1]}, 90, 0);
    HostTensor own = poisoned_tensor(dtype, {rows, dims[1]});
    const auto begin = table.bytes.begin() + static_cast<std::ptrdiff_t>(own.bytes.size()) * r;
    own.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(own.bytes.size()));
    const TensorView taken = TRY(placed(int_tensor({dims[0]}, ids)));
    const TensorView given_rows = TRY(placed(int_tensor({dims[0]}, from)));
    const TensorView given = TRY(placed(data_of(dtype, {2, dims[1]}, 91, 0)));
    const TensorView whole = TRY(placed(poisoned_tensor(dtype, dims)));
    const TensorView sum = TRY(placed(poisoned_tensor(dtype, dims)));
    const TensorView whole_table = TRY(placed(table));
    const TensorView own_rows = TRY(placed(own));
    TRY(rank.run(kEmbedding, {taken, whole_table, given_rows, given}, {whole}));
    TRY(rank.run(kEmbedding, {taken, own_rows, given_rows, given}, {sum},
                 {{"first_row", rows * r}, {"table_rows", all}}));
    TRY(rank.run(kAllReduce, {sum}, {}));
    EXPECT_EQ(TRY(rank.download(sum)).values(), TRY(rank.download(whole)).values()) << "rank " << r;
    return ok_status();
  });
}

// Some rows have less than one unit of 16 bytes per thread, some have exactly one unit, and some have between one and
// two.
TEST_P(CollectiveRanks, TheJoinedNormEqualsItsOperators) {
  const auto [ranks, dtype] = GetParam();
  const KernelTable& kernels = **test_devices().kernels(test_device().properties().type);
  const auto joined = std::ranges::find(kernels.joined(), "all_reduce", [](const auto& j) { return j.ops[0]; });
  if (joined == kernels.joined().end()) GTEST_SKIP() << "this device has no such kernel";
  if (dtype == DType::kFloat32) GTEST_SKIP() << "16-bit types alone";
  run_group(ranks, [&](int r, Rank& rank) -> Status {
    for (const std::vector<std::int64_t>& dims : {std::vector<std::int64_t>{1, 64}, {3, 4096}, {33, 5120}}) {
      const ir::Attributes attributes{{"eps", 1e-6}};
      const TensorView x = TRY(rank.place(poisoned_tensor(dtype, dims)));
      const TensorView residual = TRY(rank.place(data_of(dtype, dims, 90, 0)));
      const TensorView w = TRY(rank.place(data_of(dtype, {dims[1]}, 91, 0)));
      TRY(rank.upload(residual, data_of(dtype, dims, 90, 0)));
      TRY(rank.upload(w, data_of(dtype, {dims[1]}, 91, 0)));
      std::vector<TensorView> results;
      for (int i = 0; i < 4; ++i) results.push_back(TRY(rank.place(poisoned_tensor(dtype, dims))));
      const std::unique_ptr<BoundOp> both =
          TRY(rank.bind_joined(*joined, x, {x, residual, w}, {results[0], results[1]}, attributes));
      EXPECT_NE(both, nullptr);
      if (both == nullptr) return ok_status();
      for (int round = 0; round < 4; ++round) {
        TRY(rank.upload(x, data_of(dtype, dims, r, round)));
        TRY(both->enqueue(rank.stream()));
        TRY(rank.upload(x, data_of(dtype, dims, r, round)));
        TRY(rank.run(kAllReduce, {x}, {}));
        TRY(rank.run(**built_in_ops().get("add_rms_norm"), {x, residual, w}, {results[2], results[3]}, attributes));
        EXPECT_EQ(TRY(rank.download(results[1])).values(), TRY(rank.download(results[3])).values());
        Tolerance allowed = tolerance(dtype, 2);
        expect_close(TRY(rank.download(results[0])), TRY(rank.download(results[2])).values(), allowed,
                     "all_reduce + add_rms_norm of " + std::to_string(dims[0]) + " rows");
      }
    }
    return ok_status();
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, CollectiveRanks,
                         ::testing::Values(Group{2, DType::kBFloat16}, Group{3, DType::kFloat32},
                                           Group{4, DType::kFloat16}, Group{8, DType::kBFloat16}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + std::string(ir::dtype_name(test.param.dtype));
                         });

TEST(CollectiveRanksThatEnd, ReleaseAKernelThatWaitsForThem) {
  if (!on_cuda()) GTEST_SKIP() << "a CPU's ranks wait on the host: Collective.AbortReleasesTheOthers";
  if (!has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(2);
  std::latch bound(2);
  std::latch released(2);
  const auto run = [&](int r) -> Status {
    Communicator& own = *group[static_cast<std::size_t>(r)];
    const std::unique_ptr<Rank> rank = TRY(Rank::create(own));
    const TensorView x = TRY(rank->place(poisoned_tensor(DType::kBFloat16, {4, 64})));
    TRY(rank->bind(kAllReduce, {x}, {}));
    bound.arrive_and_wait();
    if (r == 0) {
      TRY(rank->enqueue());
      TRY(rank->stream().synchronize());  // returns, because rank 1 ends the group
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      own.abort("it was told to");
    }
    released.arrive_and_wait();
    return ok_status();
  };
  std::thread other([&] { EXPECT_TRUE(run(1).ok()); });
  EXPECT_TRUE(run(0).ok());
  other.join();
}

}  // namespace
}  // namespace tessera::testing
