// Catches: a linear's kernel that changes other rows or columns than adapter_add does, or uses a wrong rank of the
// adapter; rows without an adapter that change; and results that differ from run to run.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/adapters/adapter_rows.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/testing/device_calls.h"

namespace tessera {
namespace {

using ir::DType;
using testing::DeviceCalls;
using testing::HostTensor;
using testing::random_tensor;
using testing::test_kernels;

constexpr std::int64_t kSlots = 6;

struct AdaptedCase {
  std::int64_t rows;
  std::int64_t in;
  std::vector<std::int64_t> ranges;  // the number of columns of y in each range
  std::vector<std::int64_t> modules;
  std::int64_t rank;
  std::string_view gate = {};
  bool bias = false;
  bool residual = false;

  std::int64_t out() const {
    std::int64_t n = 0;
    for (const std::int64_t range : ranges) n += range;
    return n;
  }
  std::int64_t num_modules() const { return *std::ranges::max_element(modules) + 1; }
};

// Says which adapters the rows have.
enum class Mix { kNone, kOne, kEach, kSome, kRuns };
constexpr std::int64_t kRun = 230;  // neighbouring rows with one slot in kRuns

std::int32_t slot_of(Mix mix, std::int64_t row) {
  switch (mix) {
    case Mix::kNone: return -1;
    case Mix::kOne: return 3;
    case Mix::kEach: return static_cast<std::int32_t>(row * 5 % kSlots);
    case Mix::kSome: return static_cast<std::int32_t>(row * 5 % (kSlots + 1)) - 1;
    case Mix::kRuns: return static_cast<std::int32_t>(row / kRun % (kSlots + 1)) - 1;
  }
  return -1;
}

// A linear with adapters on the device: adapter_shrink, linear, adapter_add and perhaps a gate.
class AdaptedLinear {
 public:
  AdaptedLinear(const AdaptedCase& c, DType dtype, Mix mix) {
    calls_.limits().max_requests = mix == Mix::kRuns ? ceil_div(c.rows, kRun) : c.rows;
    const auto random = [&](std::vector<std::int64_t> dims, double most, DType type) {
      return random_tensor(type, std::move(dims), seed_++, -most, most);
    };
    const TensorView x = calls_.place(random({c.rows, c.in}, 1, dtype));
    HostTensor ranks = testing::poisoned_tensor(DType::kInt32, {kSlots, c.num_modules()});
    for (std::int64_t i = 0; i < ranks.size(); ++i) {
      const auto rank = static_cast<std::int32_t>(std::max<std::int64_t>(0, c.rank - i % 4 * (c.rank / 3)));
      std::memcpy(ranks.bytes.data() + i * 4, &rank, 4);
    }
    std::vector<std::int32_t> slots;
    for (std::int64_t row = 0; row < c.rows; ++row) slots.push_back(slot_of(mix, row));
    HostTensor table = testing::poisoned_tensor(DType::kInt32, {kAdapterRowLists, c.rows});
    write_adapter_rows(slots, slots.size(), table.bytes.data());
    const TensorView ranks_view = calls_.place(ranks);
    const TensorView table_view = calls_.place(table);

    const auto add = [&](std::string_view op, std::vector<TensorView> operands,
                         ir::Attributes attributes) -> const TensorView& {
      const ir::OpDecl& decl = **built_in_ops().get(op);
      return calls_.add(decl, std::move(operands), std::move(attributes)).results[0];
    };
    const TensorView& t = add(
        "adapter_shrink",
        {x, calls_.place(random({kSlots, c.num_modules() * c.rank, c.in}, 0.1, dtype)), ranks_view, table_view}, {});
    std::vector<TensorView> operands{x, calls_.weight(random({c.out(), c.in}, 0.1, dtype))};
    if (c.bias) operands.push_back(calls_.weight(random({c.out()}, 1, dtype)));
    if (c.residual) operands.push_back(calls_.place(random({c.rows, c.out()}, 1, dtype)));
    const TensorView& y = add("linear", operands, {{"bias", c.bias}, {"residual", c.residual}});
    shrunk_ = t;
    product_ = y;
    slots_ = slots;
    const ir::OpDecl& change = **built_in_ops().get("adapter_add");
    calls_.add(change,
               {y, t, calls_.place(random({kSlots, c.rank, c.out()}, 0.1, dtype)), ranks_view,
                calls_.place(random({kSlots, c.num_modules()}, 2, DType::kFloat32)), table_view},
               {{"rows", c.ranges}, {"modules", c.modules}});
    left_ = y;
    if (!c.gate.empty())
      left_ = add(c.gate, {y}, c.gate == "gelu_mul" ? ir::Attributes{{"tanh", true}} : ir::Attributes{});
  }

  Result<HostTensor> run_each() {
    TRY(calls_.poison());
    TRY(calls_.run_each());
    return calls_.download(left_);
  }
  // Binds adapter_shrink and a joined kernel. Returns null if the joined kernel does not support the case.
  Result<std::unique_ptr<BoundOp>> bind(const JoinedKernelDef& joined) {
    const std::vector<BindArgs> args = calls_.args();
    shrink_ = TRY(TRY(test_kernels().get("adapter_shrink"))->bind(args[0]));
    return joined.bind(std::span(args).subspan(1));
  }
  Result<HostTensor> run(const BoundOp& op) {
    TRY(calls_.poison());
    TRY(shrink_->enqueue(calls_.stream()));
    TRY(op.enqueue(calls_.stream()));
    return calls_.download(left_);
  }

  // Binds a kernel that replaces adapter_shrink and the linear, side by side.
  Result<std::unique_ptr<BoundOp>> bind_beside(const JoinedKernelDef& joined) {
    const std::vector<BindArgs> args = calls_.args();
    return joined.bind(std::span(args).first(2));
  }
  // The results of adapter_shrink and of the linear. Rows of x · aᵀ without an adapter are undefined, and here zeros.
  struct Both {
    HostTensor shrunk;
    HostTensor product;
  };
  // Runs `op`, or both operators' own kernels if it is null.
  Result<Both> run_beside(const BoundOp* op) {
    TRY(calls_.poison());
    if (op != nullptr) {
      TRY(op->enqueue(calls_.stream()));
    } else {
      const std::vector<BindArgs> args = calls_.args();
      for (std::size_t i = 0; i < 2; ++i) {
        const std::unique_ptr<BoundOp> own = TRY(TRY(test_kernels().get(args[i].node.op))->bind(args[i]));
        TRY(own->enqueue(calls_.stream()));
      }
    }
    Both both{TRY(calls_.download(shrunk_)), {}};
    both.product = TRY(calls_.download(product_));
    const std::size_t row = both.shrunk.bytes.size() / slots_.size();
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i] < 0)
        std::fill_n(both.shrunk.bytes.begin() + static_cast<std::ptrdiff_t>(i * row), row, std::byte{0});
    return both;
  }

 private:
  std::uint32_t seed_ = 1;
  DeviceCalls calls_;
  TensorView shrunk_;
  TensorView product_;
  std::vector<std::int32_t> slots_;
  TensorView left_;  // the result of the gate, or of adapter_add if there is no gate
  std::unique_ptr<BoundOp> shrink_;
};

// Returns whether a joined kernel replaces the linear of the case, its adapter_add and its gate.
bool replaces(const JoinedKernelDef& joined, const AdaptedCase& c) {
  return joined.region == nullptr && joined.ops[0] == "linear" && joined.ops[1] == "adapter_add" &&
         joined.ops[2] == c.gate;
}

const std::vector<AdaptedCase>& adapted_cases() {
  static const std::vector<AdaptedCase> all{
      {.rows = 1, .in = 4096, .ranges = {4096, 1024, 1024}, .modules = {0, 1, 2}, .rank = 16},
      {.rows = 8, .in = 4096, .ranges = {4096, 1024, 1024}, .modules = {0, 1, 2}, .rank = 16, .bias = true},
      {.rows = 5, .in = 1152, .ranges = {320, 64}, .modules = {0, 1}, .rank = 12},
      {.rows = 8, .in = 14336, .ranges = {4096}, .modules = {0}, .rank = 16, .residual = true},
      {.rows = 3, .in = 2048, .ranges = {512, 512}, .modules = {0, 1}, .rank = 40, .gate = "silu_mul"},
      {.rows = 8, .in = 4096, .ranges = {1792, 1792}, .modules = {0, 1}, .rank = 16, .gate = "gelu_mul"},
      {.rows = 7, .in = 32, .ranges = {16}, .modules = {0}, .rank = 4},
      {.rows = 13, .in = 1024, .ranges = {512, 256}, .modules = {0, 1}, .rank = 16},
      {.rows = 12, .in = 512, .ranges = {256, 128}, .modules = {0, 1}, .rank = 40},
      {.rows = 6, .in = 512, .ranges = {24, 40}, .modules = {0, 1}, .rank = 20},
      {.rows = 16, .in = 1024, .ranges = {256, 256}, .modules = {0, 1}, .rank = 16, .gate = "silu_mul"},
      {.rows = 1500, .in = 192, .ranges = {3840, 3840}, .modules = {0, 1}, .rank = 16, .gate = "silu_mul"},
      {.rows = 1100, .in = 200, .ranges = {5008, 5008}, .modules = {1, 0}, .rank = 40, .gate = "gelu_mul"},
      {.rows = 2049, .in = 64, .ranges = {7680}, .modules = {0}, .rank = 12, .gate = "silu_mul", .bias = true}};
  return all;
}

TEST(JoinedKernelsOfAdapters, EqualTheirOperators) {
  if (test_kernels().joined().empty()) GTEST_SKIP() << "this device has no joined kernels";
  int served = 0;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (const AdaptedCase& c : adapted_cases())
      for (const Mix mix : {Mix::kNone, Mix::kOne, Mix::kEach, Mix::kSome, Mix::kRuns})
        for (const JoinedKernelDef& joined : test_kernels().joined()) {
          if (!replaces(joined, c) || c.rows > joined.most_rows) continue;
          AdaptedLinear linear(c, dtype, mix);
          const Result<std::unique_ptr<BoundOp>> op = linear.bind(joined);
          ASSERT_TRUE(op.ok()) << op.status().to_string();
          if (*op == nullptr) continue;
          ++served;
          const Result<HostTensor> actual = linear.run(**op);
          ASSERT_TRUE(actual.ok()) << actual.status().to_string();
          const Result<HostTensor> again = linear.run(**op);
          const Result<HostTensor> expected = linear.run_each();
          ASSERT_TRUE(expected.ok()) << expected.status().to_string();
          const std::string name = std::string(joined.name) + ": " + std::to_string(c.rows) + " rows, k " +
                                   std::to_string(c.in) + ", n " + std::to_string(c.out()) + ", mix " +
                                   std::to_string(static_cast<int>(mix));
          testing::expect_joined(*actual, *again, *expected, name);
        }
  EXPECT_GT(served, 50);
}

TEST(JoinedKernelsOfAdapters, ShrinkBesideTheLinearEqualsBoth) {
  if (test_kernels().joined().empty()) GTEST_SKIP() << "this device has no joined kernels";
  const std::vector<AdaptedCase> cases{
      {.rows = 32, .in = 4096, .ranges = {4096, 1024, 1024}, .modules = {0, 1, 2}, .rank = 16, .bias = true},
      {.rows = 17, .in = 4096, .ranges = {4096}, .modules = {0}, .rank = 16, .residual = true},
      {.rows = 64, .in = 14336, .ranges = {4096}, .modules = {0}, .rank = 16, .residual = true},
      {.rows = 50, .in = 4096, .ranges = {4096}, .modules = {0}, .rank = 40},
      {.rows = 60, .in = 1152, .ranges = {320, 64}, .modules = {0, 1}, .rank = 12},
      {.rows = 33, .in = 520, .ranges = {256, 128}, .modules = {1, 0}, .rank = 40}};
  int served = 0;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (const AdaptedCase& c : cases)
      for (const Mix mix : {Mix::kNone, Mix::kOne, Mix::kEach, Mix::kSome})
        for (const JoinedKernelDef& joined : test_kernels().joined()) {
          if (joined.ops[0] != "adapter_shrink" || c.rows > joined.most_rows) continue;
          AdaptedLinear linear(c, dtype, mix);
          const Result<std::unique_ptr<BoundOp>> op = linear.bind_beside(joined);
          ASSERT_TRUE(op.ok()) << op.status().to_string();
          if (*op == nullptr) continue;
          ++served;
          const auto actual = linear.run_beside(op->get());
          const auto again = linear.run_beside(op->get());
          const auto expected = linear.run_beside(nullptr);
          ASSERT_TRUE(actual.ok() && again.ok() && expected.ok()) << actual.status().to_string();
          const std::string name = std::string(joined.name) + ": " + std::to_string(c.rows) + " rows, k " +
                                   std::to_string(c.in) + ", mix " + std::to_string(static_cast<int>(mix));
          EXPECT_EQ(actual->shrunk.bytes, again->shrunk.bytes) << name;
          testing::expect_close(actual->shrunk, expected->shrunk.values(), {.absolute = 1e-3, .relative = 1e-4},
                                name + ", shrunk");
          testing::expect_joined(actual->product, again->product, expected->product, name);
        }
  EXPECT_GT(served, 20);
}

// A tile of many rows adds zeros for rows without an adapter if other rows of the tile have one.
TEST(JoinedKernelsOfAdapters, RowsWithoutAdaptersKeepTheirBits) {
  if (test_kernels().joined().empty()) GTEST_SKIP() << "this device has no joined kernels";
  int compared = 0;
  for (const AdaptedCase& c : adapted_cases())
    for (const JoinedKernelDef& joined : test_kernels().joined()) {
      if (!replaces(joined, c) || c.rows > joined.most_rows) continue;
      const auto result = [&](Mix mix) -> Result<std::optional<HostTensor>> {
        AdaptedLinear linear(c, DType::kBFloat16, mix);
        const std::unique_ptr<BoundOp> op = TRY(linear.bind(joined));
        if (op == nullptr) return std::optional<HostTensor>();
        return std::optional(TRY(linear.run(*op)));
      };
      const Result<std::optional<HostTensor>> some = result(Mix::kSome);
      ASSERT_TRUE(some.ok()) << some.status().to_string();
      if (!*some) continue;
      const Result<std::optional<HostTensor>> none = result(Mix::kNone);
      ASSERT_TRUE(none.ok()) << none.status().to_string();
      for (std::int64_t row = 0; row < c.rows; ++row) {
        if (slot_of(Mix::kSome, row) >= 0) continue;
        ++compared;
        EXPECT_EQ(testing::slice_rows(**some, row, row + 1).bytes, testing::slice_rows(**none, row, row + 1).bytes)
            << joined.name << ": row " << row << " of " << c.rows;
      }
    }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace tessera
