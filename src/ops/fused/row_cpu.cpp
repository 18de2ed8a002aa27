#include "tessera/ops/fused/row_cpu.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu/row_loop.h"
#include "tessera/ops/fused/row_cpu_loops.h"
#include "tessera/ops/fused/row_kernel_builder.h"

namespace tessera {
namespace {

constexpr std::int64_t kVector = 16;  // floats per cache line; every buffer begins at the start of a cache line

struct Operand {
  std::byte* data = nullptr;
  std::int64_t rows = 0;  // elements divided by the stored value's width; 0 if nothing is stored to the operand
  ir::DType dtype = ir::DType::kFloat32;
};

bool is_once(RowOp op) { return op == RowOp::kRepeat || op == RowOp::kWeight; }
bool has_buffer(const RowValue& value) { return value.op != RowOp::kSlice && value.dtype != ir::DType::kInt32; }

// Calls f with the C++ type of a floating-point dtype. Row kernels compute no other dtypes; their int32 values are
// slots, which have no buffers.
template <class F>
void with_dtype(ir::DType dtype, F&& f) {
  switch (dtype) {
    case ir::DType::kBFloat16: return f.template operator()<BFloat16>();
    case ir::DType::kFloat16: return f.template operator()<Float16>();
    default: return f.template operator()<float>();
  }
}

// The data that all bound instances of a kernel share: the kernel, and the offsets of its buffers.
struct Layout {
  explicit Layout(RowKernel given) : kernel(std::move(given)), offsets(kernel.values.size(), 0) {
    for (std::size_t i = 0; i < kernel.values.size(); ++i) {
      const RowValue& value = kernel.values[i];
      if (!has_buffer(value)) continue;
      offsets[i] = floats;
      floats += (value.width + kVector - 1) / kVector * kVector;
      if (value.op == RowOp::kLoad) row_bytes += value.width * static_cast<std::int64_t>(ir::dtype_size(value.dtype));
    }
    for (const RowStore& store : kernel.stores)
      row_bytes += kernel.values[static_cast<std::size_t>(store.value)].width *
                   static_cast<std::int64_t>(ir::dtype_size(store.dtype));
  }
  RowKernel kernel;
  std::vector<std::int64_t> offsets;  // [values]: offset of the value's buffer, in floats
  std::int64_t floats = 0;            // size of all buffers
  std::int64_t row_bytes = 0;         // bytes read and written for a row
};

// Computes one thread's rows, one after another.
class Walk {
 public:
  Walk(const Layout& layout, const std::vector<Operand>& operands, float* scratch)
      : layout_(layout), operands_(operands), scratch_(scratch) {}

  void run(std::int64_t begin, std::int64_t end) const {
    const std::vector<RowValue>& values = layout_.kernel.values;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (is_once(values[i].op)) load(values[i], buffer(i), 0);
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::size_t i = 0; i < values.size(); ++i)
        if (has_buffer(values[i]) && !is_once(values[i].op)) compute(values[i], buffer(i), row);
      for (const RowStore& store : layout_.kernel.stores) write(store, row);
    }
  }

 private:
  float* buffer(std::size_t id) const { return scratch_ + layout_.offsets[id]; }
  const RowValue& value(int id) const { return layout_.kernel.values[static_cast<std::size_t>(id)]; }
  // Returns a value's buffer. A slice has no buffer of its own, because it is a part of its input's buffer.
  const float* read(int id) const {
    const RowValue& v = value(id);
    if (v.op == RowOp::kSlice) return read(v.inputs[0]) + v.offset;
    return buffer(static_cast<std::size_t>(id));
  }

  void load(const RowValue& v, float* to, std::int64_t row) const {
    const std::byte* data = operands_[static_cast<std::size_t>(v.operand)].data;
    with_dtype(v.dtype,
               [&]<class T>() { row_loops::load(reinterpret_cast<const T*>(data) + row * v.width, to, v.width); });
  }

  void compute(const RowValue& v, float* y, std::int64_t row) const {
    if (v.op == RowOp::kLoad) return load(v, y, row);
    const float* x = read(v.inputs[0]);
    const float* b = v.inputs.size() > 1 ? read(v.inputs[1]) : nullptr;
    const std::int64_t run = v.inputs.size() > 1 ? value(v.inputs[1]).width : 0;
    const float number = static_cast<float>(v.number);
    const std::int64_t n = v.width;
    using namespace row_loops;
    with_dtype(v.dtype, [&]<class T>() {
      switch (v.op) {
        case RowOp::kAdd: return binary<T>(x, b, y, n, run, Add{});
        case RowOp::kMul: return binary<T>(x, b, y, n, run, Mul{});
        case RowOp::kScale: return unary<T>(x, y, n, Scale{number});
        case RowOp::kCast: return unary<T>(x, y, n, Same{});
        case RowOp::kSilu: return unary<T>(x, y, n, Silu{});
        case RowOp::kGeluTanh: return unary<T>(x, y, n, GeluTanh{});
        case RowOp::kGeluErf: return unary<T>(x, y, n, GeluErf{});
        case RowOp::kSoftcap: return unary<T>(x, y, n, Softcap{number});
        case RowOp::kRmsNorm: return rms_norm<T>(x, b, y, n, run, number, v.form);
        case RowOp::kRotary: return rotary<T>(x, b, y, n, v.head_dim);
        case RowOp::kLoad:
        case RowOp::kRepeat:
        case RowOp::kWeight:
        case RowOp::kSlice: return;  // values of these four kinds are not computed
      }
    });
  }

  void write(const RowStore& store, std::int64_t row) const {
    const Operand& to = operands_[static_cast<std::size_t>(store.operand)];
    const std::int64_t width = value(store.value).width;
    if (store.slots >= 0) {
      const Operand& slots = operands_[static_cast<std::size_t>(value(store.slots).operand)];
      row = reinterpret_cast<const std::int32_t*>(slots.data)[row];
      if (row < 0 || row >= to.rows) return;
    }
    with_dtype(store.dtype, [&]<class T>() {
      row_loops::store(read(store.value), reinterpret_cast<T*>(to.data) + row * width, width);
    });
  }

  const Layout& layout_;
  const std::vector<Operand>& operands_;
  float* scratch_;
};

class CpuRowOp final : public BoundOp {
 public:
  CpuRowOp(std::shared_ptr<const Layout> layout, std::vector<Operand> operands, std::int64_t rows, std::int64_t parts,
           float* scratch)
      : layout_(std::move(layout)), operands_(std::move(operands)), rows_(rows), parts_(parts), scratch_(scratch) {}

  Status enqueue(Stream& stream) const override {
    return as_cpu(stream).launch("fused", [this] { run(); });
  }

 private:
  std::uint64_t choice() const override { return reinterpret_cast<std::uintptr_t>(layout_.get()); }

  void run() const {
    parallel_for(parts_, 1, [this](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part)
        Walk(*layout_, operands_, scratch_ + part * layout_->floats)
            .run(rows_ * part / parts_, rows_ * (part + 1) / parts_);
    });
  }

  std::shared_ptr<const Layout> layout_;
  std::vector<Operand> operands_;
  std::int64_t rows_;
  std::int64_t parts_;  // number of parts into which the rows are divided; each part has its own buffers
  float* scratch_;
};

class CpuRowCode final : public RowKernelCode {
 public:
  explicit CpuRowCode(const RowKernel& kernel) : layout_(std::make_shared<const Layout>(kernel)) {}

  // Returns the number of rows of a loaded value. load() has checked that every kernel has a loaded value.
  std::int64_t rows(const BindArgs& args) const override {
    for (const RowValue& value : layout_->kernel.values)
      if (value.op == RowOp::kLoad)
        return args.operands[static_cast<std::size_t>(value.operand)].elements() / value.width;
    return 0;
  }

  // Returns the possible schedules. A schedule is the number of parts into which the rows are divided. The first
  // schedule is used until the schedules are measured. Each of its parts reads and writes about kMinTaskBytes bytes.
  std::vector<std::int64_t> schedules(const BindArgs& args) const override {
    const std::int64_t num_rows = rows(args);
    const std::int64_t most = most_parts(args, num_rows);
    const std::int64_t worth = num_rows * layout_->row_bytes / kMinTaskBytes;
    std::vector<std::int64_t> all = {std::clamp<std::int64_t>(worth, 1, most)};
    for (std::int64_t parts = 1; parts <= most; parts *= 2)
      if (parts != all.front()) all.push_back(parts);
    if (std::ranges::find(all, most) == all.end()) all.push_back(most);
    return all;
  }

  Result<std::size_t> workspace_bytes(const BindArgs& args) const override {
    return static_cast<std::size_t>(most_parts(args, rows(args)) * layout_->floats) * sizeof(float);
  }

  Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args, std::int64_t schedule) const override {
    std::vector<Operand> operands;
    for (const std::span<const TensorView> views : {args.operands, args.results})
      for (const TensorView& view : views)
        operands.push_back({.data = view.data.raw(), .rows = 0, .dtype = view.dtype});
    for (const RowStore& store : layout_->kernel.stores) {
      const std::size_t i = static_cast<std::size_t>(store.operand);
      const TensorView& view = i < args.operands.size() ? args.operands[i] : args.results[i - args.operands.size()];
      operands[i].rows = view.elements() / layout_->kernel.values[static_cast<std::size_t>(store.value)].width;
    }
    return std::make_unique<CpuRowOp>(layout_, std::move(operands), rows(args), schedule,
                                      reinterpret_cast<float*>(args.workspace.raw()));
  }

 private:
  static std::int64_t most_parts(const BindArgs& args, std::int64_t num_rows) {
    return std::max<std::int64_t>(1, std::min(num_rows, std::int64_t{args.device.properties().threads}));
  }

  std::shared_ptr<const Layout> layout_;
};

class CpuRowKernels final : public RowKernelBuilder {
 public:
  std::string_view name() const override { return "cpu"; }
  Result<std::string> version(Device& /*device*/) const override { return std::string("loops"); }
  Result<std::string> source(const RowKernel& kernel) const override {
    TRY(row_tasks(kernel));
    return to_text(kernel);
  }
  Result<std::string> compile(const std::string& /*source*/, Device& /*device*/) const override {
    return std::string();
  }
  Result<std::shared_ptr<const RowKernelCode>> load(const RowKernel& kernel, const std::string& /*code*/,
                                                    Device& /*device*/) const override {
    if (std::ranges::none_of(kernel.values, [](const RowValue& value) { return value.op == RowOp::kLoad; }))
      return internal_error("the row kernel loads no operand, so its number of rows is unknown");
    return std::make_shared<const CpuRowCode>(kernel);
  }
};

}  // namespace

const RowKernelBuilder& cpu_row_kernels() {
  static const CpuRowKernels builder;
  return builder;
}

}  // namespace tessera
