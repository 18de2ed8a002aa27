// Catches, at a fork or join of streams: operators that begin before their input is written; operators that overwrite
// memory that the side stream still reads. The test uses operators whose launches on CUDA may begin before the
// preceding launch has ended.
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/contract/op_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using testing::filled_tensor;
using testing::HostTensor;
using testing::on_cuda;
using testing::poisoned_tensor;
using testing::test_device;

// Adds float32 tensors [rows, 1024]. All elements of a tensor are the same integer.
class Additions {
 public:
  explicit Additions(std::int64_t rows) : dims_{rows, 1024}, stream_(*test_device().create_stream("main")) {
    weight_ = place({dims_[1]});
    EXPECT_TRUE(write(weight_, 1).ok());
  }

  TensorView place() { return place(dims_); }
  // Binds sum = x + y by add_rms_norm. The test ignores the norm of the sum.
  std::unique_ptr<BoundOp> bind(const TensorView& x, const TensorView& y, const TensorView& sum) {
    const ir::OpDecl& decl = **built_in_ops().get("add_rms_norm");
    nodes_.push_back(std::make_unique<ir::Node>(testing::make_node(decl, 3, {{"eps", 1e-6}})));
    const KernelTable& kernels = **testing::test_devices().kernels(test_device().properties().type);
    const std::array operands{x, y, weight_};
    const std::array results{place(), sum};
    Result<std::unique_ptr<BoundOp>> bound =
        (*kernels.get(decl.name))->bind({*nodes_.back(), operands, results, {}, test_device(), context_});
    EXPECT_TRUE(bound.ok()) << bound.status().to_string();
    return *std::move(bound);
  }
  Status write(const TensorView& to, double value) {
    const HostTensor t = filled_tensor(DType::kFloat32, {to.elements()}, value);
    return stream_->upload(to.data, t.bytes.data(), t.bytes.size());
  }
  // Returns the value of all elements, or nothing if they differ.
  std::optional<double> value_of(const TensorView& from) {
    HostTensor t = poisoned_tensor(DType::kFloat32, {from.elements()});
    EXPECT_TRUE(stream_->download(t.bytes.data(), from.data, t.bytes.size()).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    for (std::int64_t i = 0; i < t.size(); ++i)
      if (t.at(i) != t.at(0)) return std::nullopt;
    return t.at(0);
  }
  Stream& stream() { return *stream_; }

 private:
  TensorView place(std::vector<std::int64_t> dims) {
    const HostTensor t = poisoned_tensor(DType::kFloat32, std::move(dims));
    memory_.push_back(*test_device().allocate(t.bytes.size(), "test tensor"));
    return t.view(memory_.back()->data());
  }

  std::vector<std::int64_t> dims_;
  ForwardContext context_;
  std::vector<std::unique_ptr<Allocation>> memory_;
  std::vector<std::unique_ptr<ir::Node>> nodes_;
  std::unique_ptr<Stream> stream_;
  TensorView weight_;
};

// The main stream computes c = a + b. Then the side stream computes d = c + a and several more sums that read c, while
// the main stream computes e = c + b. After the join the main stream computes f = d + e, and finally overwrites c,
// which the side stream has read.
TEST(SideWork, OperatorsThatBeginEarlyWaitForForkAndJoin) {
  Additions work(on_cuda() ? 4096 : 4);
  const TensorView a = work.place();
  const TensorView b = work.place();
  const TensorView c = work.place();
  const std::array d{work.place(), work.place()};
  const TensorView e = work.place();
  const TensorView f = work.place();
  const auto first = work.bind(a, b, c);
  const auto begin_side = work.bind(c, a, d[0]);
  const std::array go_on{work.bind(d[0], c, d[1]), work.bind(d[1], c, d[0])};
  const auto beside = work.bind(c, b, e);
  const auto last = work.bind(d[0], e, f);
  const auto overwrite = work.bind(b, b, c);
  constexpr int kSlow = 6;  // number of operators that keep the side stream busy
  const auto enqueue = [&]() -> Status {
    Stream& main = work.stream();
    Stream& side = *TRY(main.side());
    for (const TensorView& result : {c, d[0], d[1], e, f})
      TRY(main.fill(result.data, 0xff, static_cast<std::size_t>(result.bytes())));
    TRY(first->enqueue(main));
    TRY(main.fork_side());
    TRY(begin_side->enqueue(side));
    for (std::size_t i = 0; i < kSlow; ++i) TRY(go_on[i % 2]->enqueue(side));
    TRY(beside->enqueue(main));
    TRY(main.join_side());
    TRY(last->enqueue(main));
    return overwrite->enqueue(main);
  };
  std::unique_ptr<RecordedGraph> graph;
  for (const bool replayed : {false, true}) {
    if (replayed) {
      ASSERT_TRUE(work.stream().begin_recording("side work").ok());
      ASSERT_TRUE(enqueue().ok());
      graph = *work.stream().end_recording();
    }
    for (int round = 0; round < 20; ++round) {
      ASSERT_TRUE(work.write(a, round).ok());
      ASSERT_TRUE(work.write(b, 2).ok());
      const Status enqueued = replayed ? graph->launch(work.stream()) : enqueue();
      ASSERT_TRUE(enqueued.ok()) << enqueued.to_string();
      const double c_then = round + 2;
      ASSERT_EQ(work.value_of(f), c_then + round + kSlow * c_then + c_then + 2)
          << (replayed ? "replay " : "eager ") << round;
      ASSERT_EQ(work.value_of(c), 4);
    }
  }
}

}  // namespace
}  // namespace tessera
