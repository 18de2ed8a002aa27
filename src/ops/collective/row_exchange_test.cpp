// Tests the exchange of rows on the device under test. Catches: rows in the place of another rank's rows; sums that are
// not added in rank order or are rounded twice; values of an earlier call that are mistaken for values of this call
// (also in replays); ranks that wait forever for a rank that has failed. On GPUs each rank needs its own GPU.
#include "tessera/ops/collective/row_exchange.h"

#include <gmock/gmock.h>

#include <latch>
#include <thread>

#include "tessera/comm/communicator.h"
#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/testing/ranks.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

HostTensor rows_of_rank(DType dtype, std::vector<std::int64_t> dims, int rank, int round) {
  HostTensor t = random_tensor(dtype, std::move(dims), static_cast<std::uint32_t>(1000 * round + rank + 1), -8, 8);
  for (std::int64_t i = 0; i < t.size(); i += 7) t.set(i, i % 2 == 0 ? -0.0 : 0.0);
  return t;
}

// Makes all zeros positive before a comparison, because the sign of a zero is lost in sums that begin with +0 and in
// mailboxes.
std::vector<double> unsigned_zeros(std::vector<double> values) {
  for (double& value : values) value += 0.0;
  return values;
}

struct RowSizes {
  std::int64_t rows;  // rows of a rank
  std::int64_t cols;
};

struct RowGroup {
  int ranks;
  DType dtype;
};

// Holds one rank's operators for several sizes, and their results.
class Exchange {
 public:
  static Result<std::unique_ptr<Exchange>> create(Communicator& communicator, DType dtype,
                                                  const std::vector<RowSizes>& sizes) {
    std::unique_ptr<Exchange> made(new Exchange);
    made->rank_ = communicator.rank();
    made->ranks_ = communicator.ranks();
    made->device_ = TRY(open_rank_device(communicator));
    made->stream_ = TRY(made->device_->create_stream("rank"));
    made->context_.communicator = &communicator;
    for (const auto& [rows, cols] : sizes) {
      const std::vector<std::int64_t> all{rows * made->ranks_, cols};
      TRY(made->bind(kAllGatherRows, dtype, {rows, cols}, all));
      TRY(made->bind(kAllGatherRows, DType::kInt32, {rows}, {rows * made->ranks_}));
      TRY(made->bind(kReduceScatter, dtype, all, {rows, cols}));
    }
    return made;
  }

  // Runs all exchanges with the data of `round` and compares every result. If `replay` is true, launches the graph.
  // Otherwise runs the exchanges eagerly.
  Status run(int round, bool replay) {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const HostTensor x = operand(i, rank_, round);
      TRY(stream_->upload(calls_[i].x.data, x.bytes.data(), x.bytes.size()));
    }
    if (replay && graph_ == nullptr) {
      TRY(stream_->begin_recording("exchange"));
      for (const Call& call : calls_) TRY(call.op->enqueue(*stream_));
      graph_ = TRY(stream_->end_recording());
    }
    if (replay) {
      TRY(graph_->launch(*stream_));
    } else {
      for (const Call& call : calls_) TRY(call.op->enqueue(*stream_));
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      HostTensor y = calls_[i].y_host;
      TRY(stream_->download(y.bytes.data(), calls_[i].y.data, y.bytes.size()));
      TRY(stream_->synchronize());
      EXPECT_EQ(unsigned_zeros(y.values()), unsigned_zeros(expected(i, round)))
          << calls_[i].node->op << " " << i << ", rank " << rank_ << ", round " << round;
    }
    return ok_status();
  }

 private:
  struct Call {
    std::unique_ptr<ir::Node> node;
    std::vector<std::int64_t> dims;  // dimensions of x
    DType dtype;
    TensorView x;
    TensorView y;
    HostTensor y_host;
    std::unique_ptr<BoundOp> op;
  };

  Exchange() = default;
  Result<TensorView> place(const HostTensor& t) {
    memory_.push_back(TRY(device_->allocate(t.bytes.size(), "test tensor")));
    return t.view(memory_.back()->data());
  }
  Status bind(const ir::OpDecl& decl, DType dtype, const std::vector<std::int64_t>& x,
              const std::vector<std::int64_t>& y) {
    Call call{.node = std::make_unique<ir::Node>(make_node(decl, 1, {{"ranks", std::int64_t{ranks_}}})),
              .dims = x,
              .dtype = dtype,
              .x = {},
              .y = {},
              .y_host = poisoned_tensor(dtype, y),
              .op = nullptr};
    call.x = TRY(place(poisoned_tensor(dtype, x)));
    call.y = TRY(place(call.y_host));
    const KernelTable& kernels = *TRY(test_devices().kernels(device_->properties().type));
    const KernelDef& kernel = *TRY(kernels.get(decl.name));
    call.op = TRY(kernel.bind({*call.node, {&call.x, 1}, {&call.y, 1}, {}, *device_, context_}));
    calls_.push_back(std::move(call));
    return ok_status();
  }
  HostTensor operand(std::size_t i, int rank, int round) const {
    const Call& call = calls_[i];
    if (call.dtype != DType::kInt32) return rows_of_rank(call.dtype, call.dims, rank, round + static_cast<int>(i));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(call.dims[0]), -1);  // slot numbers; -1 is padding
    ids[0] = 100 * rank + round;
    return int_tensor(call.dims, ids);
  }
  std::vector<double> expected(std::size_t i, int round) const {
    const Call& call = calls_[i];
    std::vector<double> all;
    if (call.node->op == "all_gather_rows") {
      for (int r = 0; r < ranks_; ++r) {
        const std::vector<double> x = operand(i, r, round).values();
        all.insert(all.end(), x.begin(), x.end());
      }
      return all;
    }
    HostTensor sums = call.y_host;
    std::vector<float> added(static_cast<std::size_t>(sums.size()));
    for (int r = 0; r < ranks_; ++r) {
      const HostTensor x = operand(i, r, round);
      for (std::size_t at = 0; at < added.size(); ++at)
        added[at] += static_cast<float>(x.at(rank_ * sums.size() + static_cast<std::int64_t>(at)));
    }
    for (std::size_t at = 0; at < added.size(); ++at)
      sums.set(static_cast<std::int64_t>(at), static_cast<double>(added[at]));
    return sums.values();
  }

  int rank_ = 0;
  int ranks_ = 1;
  std::unique_ptr<Device> device_;
  ForwardContext context_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Allocation>> memory_;
  std::vector<Call> calls_;
  std::unique_ptr<RecordedGraph> graph_;
};

// Calls body(communicator, all_done) → Status on a thread for each rank. `body` waits for all_done before it returns,
// so that no rank ends before all have run.
template <class Body>
void exchange_on_ranks(int ranks, const Body& body) {
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(ranks);
  std::latch all_done(ranks);
  std::vector<std::thread> threads;
  for (const auto& own : group) {
    threads.emplace_back([&] {
      const Status status = body(*own, all_done);
      if (!status.ok()) own->abort(status.message());
      EXPECT_TRUE(status.ok()) << "rank " << own->rank() << ": " << status.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class RowExchange : public ::testing::TestWithParam<RowGroup> {};

// Some rows have a multiple of 16 bytes, and other rows only a multiple of 4 bytes. Some sizes need one block, some
// many blocks, and some are larger than a mailbox.
TEST_P(RowExchange, RepeatedExchangesOfEverySizeMatch) {
  const auto [ranks, dtype] = GetParam();
  if (!has_devices_for(ranks)) GTEST_SKIP() << "needs " << ranks << " GPUs";
  std::vector<RowSizes> sizes = {{1, 2}, {3, 64}, {7, 130}, {1, 4096}};
  if (on_cuda()) sizes.insert(sizes.end(), {{64, 4096}, {2048, 6144}, {1, 8}});
  exchange_on_ranks(ranks, [&](Communicator& own, std::latch& all_done) -> Status {
    Result<std::unique_ptr<Exchange>> exchange = Exchange::create(own, dtype, sizes);
    Status status = exchange.status();
    for (int round = 0; status.ok() && round < 4; ++round) status = (*exchange)->run(round, round % 2 == 1);
    if (!status.ok()) own.abort(status.message());
    all_done.arrive_and_wait();
    return status;
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, RowExchange,
                         ::testing::Values(RowGroup{2, DType::kBFloat16}, RowGroup{3, DType::kFloat32},
                                           RowGroup{4, DType::kFloat16}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + std::string(ir::dtype_name(test.param.dtype));
                         });

TEST(RowExchangeOps, AbortReleasesTheOthers) {
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(2);
  std::thread other([&] { group[1]->abort("out of memory"); });
  HostTensor x = filled_tensor(DType::kFloat32, {2, 2}, 1);
  HostTensor y = poisoned_tensor(DType::kFloat32, {1, 2});
  const Status status =
      group[0]->reduce_scatter(x.view(DeviceAddress{x.bytes.data()}), y.view(DeviceAddress{y.bytes.data()}));
  other.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 of 2 left the group: out of memory"));
}

TEST(RowExchangeOps, RanksOfOtherSizesDisagree) {
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(2);
  const auto gather = [&](int rank) {
    HostTensor x = filled_tensor(DType::kFloat32, {rank + 1, 2}, 1);
    HostTensor y = poisoned_tensor(DType::kFloat32, {4, 2});
    const Status status = group[static_cast<std::size_t>(rank)]->all_gather_rows(x.view(DeviceAddress{x.bytes.data()}),
                                                                                 y.view(DeviceAddress{y.bytes.data()}));
    EXPECT_THAT(status.message(), HasSubstr("rank 0 is in all_gather_rows with 2 elements f32, rank 1 in "
                                            "all_gather_rows with 4 f32"));
  };
  std::thread other([&] { gather(1); });
  gather(0);
  other.join();
}

TEST(RowExchangeOps, OneRankNeedsNoCommunicator) {
  const HostTensor x = random_tensor(DType::kBFloat16, {3, 4}, 1);
  for (const auto& [decl, kernel] :
       {std::pair{&kAllGatherRows, &kAllGatherRowsCpu}, {&kReduceScatter, &kReduceScatterCpu}})
    EXPECT_EQ(run_op(*decl, *kernel, {x}, {{"ranks", std::int64_t{1}}}).results[0].bytes, x.bytes);
}

TEST(RowExchangeOps, RefuseWhatDoesNotFit) {
  const ir::Attributes four{{"ranks", std::int64_t{4}}};
  const ir::Type own{DType::kFloat32, {ir::Symbol::kTokens, 8}};
  const ir::Type all{DType::kFloat32, {ir::Dim(ir::Symbol::kTokens) * 4, 8}};
  EXPECT_EQ((*infer_types(kAllGatherRows, {own}, four))[0], all);
  EXPECT_EQ((*infer_types(kReduceScatter, {all}, four))[0], own);
  for (const ir::OpDecl* decl : {&kAllGatherRows, &kReduceScatter})
    EXPECT_THAT(infer_error(*decl, {own}, {{"ranks", std::int64_t{0}}}), HasSubstr("ranks is 0"));
  EXPECT_THAT(infer_error(kAllGatherRows, {{DType::kFloat32, {}}}, four), HasSubstr("not f32[]"));
  EXPECT_THAT(infer_error(kReduceScatter, {{DType::kInt32, {8}}}, four), HasSubstr("not i32[8]"));
  const HostTensor t = random_tensor(DType::kFloat32, {4, 2}, 1);
  EXPECT_THAT(try_run_op(kReduceScatter, kReduceScatterCpu, {t}, {{"ranks", std::int64_t{2}}}).status().message(),
              HasSubstr("built for 2 ranks, but 1 run"));
}

}  // namespace
}  // namespace tessera::testing
