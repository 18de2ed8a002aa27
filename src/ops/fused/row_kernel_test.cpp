// Catches: results that differ from the formulas in double; writes to rows that a kernel must not change; bits of a row
// that depend on the batch or the schedule; graphs that differ from the eager run. The tests run on the device that
// TESSERA_TEST_DEVICE names.
#include "tessera/ops/fused/row_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/fused/row_kernel_builder.h"
#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::int_tensor;
using testing::poisoned_tensor;
using testing::random_tensor;
using testing::rounded_to;

// Builds a kernel value by value.
class Draft {
 public:
  explicit Draft(DType dtype) : dtype_(dtype) { kernel_.rows = ir::Dim(ir::Symbol::kTokens); }

  int source(RowOp op, std::int64_t width, DType dtype) {
    return push({.op = op, .dtype = dtype, .width = width, .operand = kernel_.num_operands++});
  }
  int load(std::int64_t width) { return source(RowOp::kLoad, width, dtype_); }
  int weight(std::int64_t width) { return source(RowOp::kWeight, width, dtype_); }
  int make(RowOp op, std::vector<int> inputs, double number = 0, std::int64_t head_dim = 0) {
    const std::int64_t width = kernel_.values[static_cast<std::size_t>(inputs[0])].width;
    return push({.op = op,
                 .dtype = dtype_,
                 .width = width,
                 .inputs = std::move(inputs),
                 .head_dim = head_dim,
                 .number = number});
  }
  int make_norm(int x, int weight, double eps, NormForm form) {
    const int y = make(RowOp::kRmsNorm, {x, weight}, eps);
    kernel_.values.back().form = form;
    return y;
  }
  int slice(int x, std::int64_t offset, std::int64_t width) {
    return push({.op = RowOp::kSlice, .dtype = dtype_, .width = width, .inputs = {x}, .offset = offset});
  }
  void store(int value, int slots = -1) {
    kernel_.stores.push_back({.value = value, .operand = kernel_.num_operands++, .slots = slots, .dtype = dtype_});
  }
  const RowKernel& kernel() const { return kernel_; }

 private:
  int push(RowValue value) {
    kernel_.values.push_back(std::move(value));
    return static_cast<int>(kernel_.values.size()) - 1;
  }
  DType dtype_;
  RowKernel kernel_;
};

// Computes a row's values in double, rounded where the kernel rounds.
std::vector<std::vector<double>> reference_row(const RowKernel& kernel, const std::vector<HostTensor>& operands,
                                               std::int64_t row) {
  std::vector<std::vector<double>> values;
  for (const RowValue& v : kernel.values) {
    const auto n = static_cast<std::size_t>(v.width);
    std::vector<double> y(n);
    double squares = 0;  // sum of squares of the current run
    const auto in = [&](std::size_t k) -> const std::vector<double>& {
      return values[static_cast<std::size_t>(v.inputs[k])];
    };
    const auto rounded = [&](double x) { return rounded_to(v.dtype, x); };
    for (std::size_t i = 0; i < n; ++i) {
      const double x = v.inputs.empty() ? 0 : in(0)[v.op == RowOp::kSlice ? i + static_cast<std::size_t>(v.offset) : i];
      const auto b = [&] { return in(1)[i % in(1).size()]; };
      const HostTensor* t = v.operand < 0 ? nullptr : &operands[static_cast<std::size_t>(v.operand)];
      switch (v.op) {
        case RowOp::kLoad: y[i] = t->at(row * v.width + static_cast<std::int64_t>(i)); break;
        case RowOp::kRepeat:
        case RowOp::kWeight: y[i] = t->at(static_cast<std::int64_t>(i)); break;
        case RowOp::kSlice:
        case RowOp::kCast: y[i] = rounded(x); break;
        case RowOp::kAdd: y[i] = rounded(x + b()); break;
        case RowOp::kMul: y[i] = rounded(x * b()); break;
        case RowOp::kScale: y[i] = rounded(x * v.number); break;
        case RowOp::kSilu: y[i] = rounded(x / (1 + std::exp(-x))); break;
        case RowOp::kGeluTanh:
          y[i] = rounded(0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))));
          break;
        case RowOp::kGeluErf: y[i] = rounded(0.5 * x * (1 + std::erf(x / std::sqrt(2.0)))); break;
        case RowOp::kSoftcap: y[i] = rounded(v.number * std::tanh(x / v.number)); break;
        case RowOp::kRmsNorm: {
          const std::size_t run = in(1).size();
          if (i % run == 0) {
            squares = 0;
            for (std::size_t j = i; j < i + run; ++j) squares += in(0)[j] * in(0)[j];
          }
          const double scaled = x / std::sqrt(squares / static_cast<double>(run) + v.number);
          const double weight = v.form == NormForm::kUnitOffset ? 1 + b() : b();
          y[i] = rounded((v.form == NormForm::kRoundFirst ? rounded(scaled) : scaled) * weight);
          break;
        }
        case RowOp::kRotary: {
          const auto head = static_cast<std::size_t>(v.head_dim);
          const std::size_t j = i % head;
          const bool low = j < head / 2;
          const double partner = in(0)[low ? i + head / 2 : i - head / 2];
          const double cosine = in(1)[j % (head / 2)];
          const double sine = in(1)[j % (head / 2) + head / 2];
          y[i] = rounded(low ? x * cosine - partner * sine : x * cosine + partner * sine);
          break;
        }
      }
    }
    values.push_back(std::move(y));
  }
  return values;
}

class RowKernels : public ::testing::TestWithParam<DType> {
 protected:
  static Result<const RowKernelBuilder*> builder() {
    const Backend* backend = TRY(testing::test_devices().backend(testing::test_device().properties().type));
    const RowKernelBuilder* found = &backend->row_kernels();
    TRY(found->version(testing::test_device()));
    return found;
  }

  // Returns the operands after an eager run of the kernel. Checks that a captured graph and all other schedules leave
  // the same bits.
  static Result<std::vector<HostTensor>> run(const RowKernel& kernel, const std::vector<HostTensor>& operands) {
    Device& device = testing::test_device();
    const RowKernelBuilder& made = *TRY(builder());
    const std::string code = TRY(made.compile(TRY(made.source(kernel)), device));
    const std::shared_ptr<const RowKernelCode> loaded = TRY(made.load(kernel, code, device));
    std::unique_ptr<Stream> stream = TRY(device.create_stream("test"));
    std::vector<std::unique_ptr<Allocation>> memory;
    std::vector<TensorView> views;
    for (const HostTensor& t : operands) {
      memory.push_back(TRY(device.allocate(t.bytes.size(), "test tensor")));
      views.push_back(t.view(memory.back()->data()));
    }
    const ir::Node node;
    const ForwardContext context;
    BindArgs args{node, views, {}, {}, device, context};
    memory.push_back(TRY(device.allocate(TRY(loaded->workspace_bytes(args)), "workspace")));
    args.workspace = memory.back()->data();
    const std::unique_ptr<BoundOp> bound = TRY(loaded->bind(args, loaded->schedules(args).front()));
    const auto upload = [&]() -> Status {
      for (std::size_t i = 0; i < operands.size(); ++i)
        TRY(stream->upload(memory[i]->data(), operands[i].bytes.data(), operands[i].bytes.size()));
      return ok_status();
    };
    const auto download = [&]() -> Result<std::vector<HostTensor>> {
      std::vector<HostTensor> after = operands;
      for (std::size_t i = 0; i < operands.size(); ++i)
        TRY(stream->download(after[i].bytes.data(), memory[i]->data(), after[i].bytes.size()));
      TRY(stream->synchronize());
      return after;
    };
    TRY(upload());
    TRY(bound->enqueue(*stream));
    std::vector<HostTensor> eager = TRY(download());
    TRY(stream->begin_recording("test"));
    TRY(bound->enqueue(*stream));
    const std::unique_ptr<RecordedGraph> graph = TRY(stream->end_recording());
    TRY(upload());
    TRY(graph->launch(*stream));
    const std::vector<HostTensor> replayed = TRY(download());
    for (std::size_t i = 0; i < eager.size(); ++i) EXPECT_EQ(eager[i].bytes, replayed[i].bytes) << "operand " << i;
    for (const std::int64_t schedule : loaded->schedules(args)) {
      const std::unique_ptr<BoundOp> other = TRY(loaded->bind(args, schedule));
      TRY(upload());
      TRY(other->enqueue(*stream));
      const std::vector<HostTensor> made_so = TRY(download());
      for (std::size_t i = 0; i < eager.size(); ++i)
        EXPECT_EQ(eager[i].bytes, made_so[i].bytes) << "operand " << i << " by schedule " << schedule;
    }
    return eager;
  }

  // Makes operands with random contents. Row r has slot rows + 7 - r. Rows 1, 7, 10, 13, … instead have slot -1, and
  // row 4 has a slot past the end. An operand that is written through slots has eight more rows than the other
  // operands.
  static std::vector<HostTensor> operands_of(const RowKernel& kernel, std::int64_t rows) {
    std::vector<HostTensor> operands(static_cast<std::size_t>(kernel.num_operands));
    for (const RowValue& v : kernel.values) {
      if (v.operand < 0) continue;
      const auto i = static_cast<std::size_t>(v.operand);
      if (v.dtype == DType::kInt32) {
        std::vector<std::int32_t> slots;
        for (std::int64_t r = 0; r < rows; ++r)
          slots.push_back(r % 3 == 1 ? -1 : static_cast<std::int32_t>(rows + 7 - r));
        if (rows > 4) slots[4] = 1 << 20;  // not a row of the cache
        operands[i] = int_tensor({rows}, slots);
      } else {
        operands[i] = random_tensor(v.dtype, {v.op == RowOp::kLoad ? rows : 1, v.width},
                                    static_cast<std::uint32_t>(i) + 1, -2, 2);
      }
    }
    for (const RowStore& s : kernel.stores)
      operands[static_cast<std::size_t>(s.operand)] = poisoned_tensor(
          s.dtype, {s.slots < 0 ? rows : rows + 8, kernel.values[static_cast<std::size_t>(s.value)].width});
    return operands;
  }

  static void check(const RowKernel& kernel, const std::string& what) {
    std::vector<HostTensor> alone;
    double greatest = 0;
    for (const std::int64_t rows : {1, 2, 7, 33}) {
      const std::vector<HostTensor> operands = operands_of(kernel, rows);
      const Result<std::vector<HostTensor>> after = run(kernel, operands);
      ASSERT_TRUE(after.ok()) << what << ": " << after.status().to_string();
      std::vector<std::vector<std::vector<double>>> expected;
      for (std::int64_t r = 0; r < rows; ++r) expected.push_back(reference_row(kernel, operands, r));
      for (const RowStore& s : kernel.stores) {
        const HostTensor& out = (*after)[static_cast<std::size_t>(s.operand)];
        const std::int64_t width = out.dims[1];
        std::vector<bool> written(static_cast<std::size_t>(out.dims[0]), false);
        for (std::int64_t r = 0; r < rows; ++r) {
          std::int64_t to = r;
          if (s.slots >= 0) {
            const RowValue& slots = kernel.values[static_cast<std::size_t>(s.slots)];
            to = static_cast<std::int64_t>(operands[static_cast<std::size_t>(slots.operand)].at(r));
            if (to < 0 || to >= out.dims[0]) continue;
          }
          written[static_cast<std::size_t>(to)] = true;
          const std::vector<double>& wanted = expected[static_cast<std::size_t>(r)][static_cast<std::size_t>(s.value)];
          for (std::int64_t i = 0; i < width; ++i) {
            const double want = wanted[static_cast<std::size_t>(i)];
            const double got = out.at(to * width + i);
            // An intermediate value may round to a neighbour of the reference's value. `unit` is about twice the
            // distance between 1 and the next number in float16 and bfloat16, and about 17 times this distance in
            // float32. A difference of 2 · `unit` is allowed, because such differences also add up in sums. The
            // tolerance is relative above 1 and absolute below.
            const double unit = out.dtype == DType::kFloat32 ? 2e-6 : out.dtype == DType::kFloat16 ? 2e-3 : 1.6e-2;
            greatest = std::max(greatest, std::abs(got - want));
            ASSERT_NEAR(got, want, unit * std::max(1.0, std::abs(want)) * 2) << what << ", row " << r << ", " << i;
          }
        }
        for (std::int64_t i = 0; i < out.size(); ++i)
          ASSERT_TRUE(written[static_cast<std::size_t>(i / width)] || std::isnan(out.at(i)))
              << what << " wrote row " << i / width << " of another";
      }
      // The first row of each operand has the same contents for any number of rows. So row 0 of the result must have
      // the same bits for each number of rows.
      const RowStore& first = kernel.stores[0];
      if (first.slots >= 0) continue;
      HostTensor row = (*after)[static_cast<std::size_t>(first.operand)];
      row.bytes.resize(row.bytes.size() / static_cast<std::size_t>(rows));
      if (alone.empty()) alone.push_back(row);
      EXPECT_EQ(row.bytes, alone[0].bytes) << what << ": row 0 among " << rows;
    }
    std::printf("%s: greatest difference %.2e\n", what.c_str(), greatest);
  }
};

// Some widths give rows of whole packs, and others give rows of single elements. Some rows need a warp, others need a
// block, and some need several packs for each thread.
TEST_P(RowKernels, ResidualAndNorm) {
  for (const std::int64_t width : {8, 24, 7, 257, 1024, 4096, 12288}) {
    Draft d(GetParam());
    const int sum = d.make(RowOp::kAdd, {d.load(width), d.load(width)});
    const int normed = d.make(RowOp::kRmsNorm, {sum, d.weight(width)}, 1e-5);
    d.store(normed);
    d.store(sum);
    check(d.kernel(), "add, rms_norm of " + std::to_string(width));
  }
}

TEST_P(RowKernels, NormsOfEveryFormMatchTheReference) {
  for (const std::int64_t width : {24, 1024}) {
    Draft d(GetParam());
    const int x = d.load(width);
    const int w = d.weight(width);
    d.store(d.make_norm(x, w, 1e-5, NormForm::kUnitOffset));
    d.store(d.make_norm(x, w, 1e-5, NormForm::kRoundOnce));
    check(d.kernel(), "rms_norm of 1 + w, and of w rounded once, " + std::to_string(width));
  }
}

TEST_P(RowKernels, ConsecutiveNormsMatchTheReference) {
  for (const std::int64_t width : {64, 2048}) {
    Draft d(GetParam());
    const int first = d.make(RowOp::kRmsNorm, {d.load(width), d.weight(width)}, 1e-5);
    const int second = d.make(RowOp::kRmsNorm, {d.make(RowOp::kAdd, {first, d.load(width)}), d.weight(width)}, 1e-5);
    d.store(second);
    check(d.kernel(), "two norms of " + std::to_string(width));
  }
}

TEST_P(RowKernels, GatedActivationsMatchTheReference) {
  for (const std::int64_t width : {5, 48, 3072})
    for (const RowOp activation : {RowOp::kSilu, RowOp::kGeluTanh, RowOp::kGeluErf}) {
      Draft d(GetParam());
      const int x = d.load(2 * width);
      const int gate = d.make(activation, {d.slice(x, 0, width)});
      d.store(d.make(RowOp::kMul, {gate, d.slice(x, width, width)}));
      check(d.kernel(), std::string(row_op_name(activation)) + ", mul of " + std::to_string(width));
    }
}

TEST_P(RowKernels, ARepeatedRowMatchesTheReference) {
  Draft d(GetParam());
  const int x =
      d.make(RowOp::kScale, {d.make(RowOp::kAdd, {d.load(96), d.source(RowOp::kRepeat, 32, GetParam())})}, -0.5);
  d.store(d.make(RowOp::kSoftcap, {x}, 3.0));
  d.store(x);
  check(d.kernel(), "add, scale, softcap");
}

TEST_P(RowKernels, QueryKeyAndValueHeadsMatchTheReference) {
  for (const std::int64_t head : {4, 64, 128, 256})
    for (const bool norm : {false, true}) {
      Draft d(GetParam());
      const std::int64_t heads = 6;
      const int qkv = d.load((heads + 4) * head);
      const int table = d.source(RowOp::kLoad, head, DType::kFloat32);
      const int slots = d.source(RowOp::kLoad, 1, DType::kInt32);
      int q = d.slice(qkv, 0, heads * head);
      int k = d.slice(qkv, heads * head, 2 * head);
      const int v = d.slice(qkv, (heads + 2) * head, 2 * head);
      if (norm) {
        q = d.make(RowOp::kRmsNorm, {q, d.weight(head)}, 1e-5);
        k = d.make(RowOp::kRmsNorm, {k, d.weight(head)}, 1e-5);
      }
      d.store(d.make(RowOp::kRotary, {q, table}, 0, head));
      d.store(d.make(RowOp::kRotary, {k, table}, 0, head), slots);
      d.store(v, slots);
      check(d.kernel(), "heads of " + std::to_string(head) + (norm ? " with norms" : ""));
    }
}

// Normalises over all heads, and then rotates each head.
TEST_P(RowKernels, ANormOverAllHeadsMatchesTheReference) {
  Draft d(GetParam());
  const int x = d.make(RowOp::kRmsNorm, {d.load(1536), d.weight(1536)}, 1e-5);
  d.store(d.make(RowOp::kRotary, {x, d.source(RowOp::kLoad, 64, DType::kFloat32)}, 0, 64));
  check(d.kernel(), "norm and rotation of 1536");
}

INSTANTIATE_TEST_SUITE_P(DTypes, RowKernels, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& dtype) { return std::string(ir::dtype_name(dtype.param)); });

TEST(RowTasks, RefuseUnsupportedKernelsWithTheReason) {
  const auto reason = [](const Draft& d) { return row_tasks(d.kernel()).status().message(); };
  Draft runs(DType::kFloat32);
  const int x = runs.make(RowOp::kRmsNorm, {runs.load(64), runs.weight(64)}, 1e-5);
  runs.store(runs.make(RowOp::kRmsNorm, {x, runs.weight(16)}, 1e-5));
  EXPECT_THAT(reason(runs), HasSubstr("reductions over 64 and 16"));
  Draft part(DType::kFloat32);
  part.store(part.slice(part.make(RowOp::kRmsNorm, {part.load(64), part.weight(64)}, 1e-5), 0, 32));
  EXPECT_THAT(reason(part), HasSubstr("a part of a value that was reduced"));
  Draft many(DType::kFloat32);
  int sum = many.load(8);
  for (int i = 0; i < kMaxRowOperands; ++i) sum = many.make(RowOp::kAdd, {sum, many.load(8)});
  many.store(sum);
  EXPECT_THAT(reason(many), HasSubstr("at most 24"));
}

}  // namespace
}  // namespace tessera
