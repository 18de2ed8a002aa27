#include "tessera/ops/linear/onednn_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <dnnl.hpp>
#include <vector>

#include "tessera/device/cpu/parallel.h"

namespace tessera {
namespace {

using Tag = dnnl::memory::format_tag;

// There is a oneDNN primitive for every multiple of kStep rows. A product therefore computes at most kStep - 1
// additional rows.
constexpr std::int64_t kStep = 16;
static_assert(OneDnnBlocks::kMostRows % kStep == 0);

std::size_t index_of(std::int64_t rows) {
  return static_cast<std::size_t>(std::max<std::int64_t>(rows - 1, 0) / kStep);
}
std::int64_t rows_of(std::size_t index) { return (static_cast<std::int64_t>(index) + 1) * kStep; }

// Limits oneDNN to one thread. oneDNN divides a product among the available threads when it makes the primitive, and
// expects the same number of threads when it runs.
class OneThread {
 public:
  OneThread() : before_(worker_threads()) { set_worker_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { set_worker_threads(before_); }

 private:
  int before_;
};

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const OneDnnBlocks::Shape& shape, std::int64_t rows) {
  const auto type = shape.dtype == ir::DType::kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  const dnnl::memory::desc x({rows, shape.depth}, type, Tag::ab);
  const dnnl::memory::desc w({shape.depth, shape.columns}, type, Tag::ba);  // w[columns, depth], read as its transpose
  const auto y_type = shape.float_sums ? dnnl::memory::data_type::f32 : type;
  const dnnl::memory::desc y({rows, shape.columns}, y_type, Tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (!shape.bias) return {dnnl::matmul::desc(x, w, y), attributes, engine};
  return {dnnl::matmul::desc(x, w, dnnl::memory::desc({1, shape.columns}, type, Tag::ab), y), attributes, engine};
}

Status failure(const OneDnnBlocks::Shape& shape, const char* what) {
  return internal_error(fmt::format("oneDNN has no matmul of blocks of {} columns, {} deep, of {}: {}", shape.columns,
                                    shape.depth, ir::dtype_name(shape.dtype), what));
}

// A oneDNN view of an operand's memory for one run.
class Argument {
 public:
  Argument(const dnnl::memory::desc& description, const dnnl::engine& engine, const std::byte* data) {
    // oneDNN takes operands as pointers to non-const.
    status_ = dnnl_memory_create(&memory_, &description.data, engine.get(), const_cast<std::byte*>(data));
  }
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  ~Argument() {
    if (memory_ != nullptr) dnnl_memory_destroy(memory_);
  }
  dnnl_memory_t get() const { return memory_; }
  bool ok() const { return status_ == dnnl_success; }

 private:
  dnnl_memory_t memory_ = nullptr;
  dnnl_status_t status_;
};

}  // namespace

struct OneDnnBlocks::Primitives {
  Shape shape;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<dnnl::matmul::primitive_desc> descriptions;  // one for each multiple of kStep rows
  std::vector<dnnl::matmul> matmuls;
};

OneDnnBlocks::OneDnnBlocks(std::unique_ptr<Primitives> primitives) : primitives_(std::move(primitives)) {}
OneDnnBlocks::~OneDnnBlocks() = default;

std::int64_t OneDnnBlocks::computed_rows(std::int64_t rows) { return rows_of(index_of(rows)); }

Result<std::unique_ptr<OneDnnBlocks>> OneDnnBlocks::create(const Shape& shape, std::int64_t most_rows) {
  const OneThread one;
  try {
    auto made = std::make_unique<Primitives>();
    made->shape = shape;
    for (std::size_t i = 0; i <= index_of(most_rows); ++i) {
      made->descriptions.push_back(describe(made->engine, shape, rows_of(i)));
      made->matmuls.emplace_back(made->descriptions.back());
    }
    return std::unique_ptr<OneDnnBlocks>(new OneDnnBlocks(std::move(made)));
  } catch (const dnnl::error& error) {
    return failure(shape, error.what());
  }
}

Result<std::size_t> OneDnnBlocks::scratch_bytes(const Shape& shape, std::int64_t most_rows) {
  const OneThread one;
  try {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    std::size_t most = 0;
    for (std::size_t i = 0; i <= index_of(most_rows); ++i)
      most = std::max(most, describe(engine, shape, rows_of(i)).scratchpad_desc().get_size());
    return most;
  } catch (const dnnl::error& error) {
    return failure(shape, error.what());
  }
}

Status OneDnnBlocks::run(std::int64_t rows, const Operands& operands) const {
  const OneThread one;
  const std::size_t i = index_of(rows);
  const Primitives& all = *primitives_;
  const dnnl::matmul::primitive_desc& matmul = all.descriptions[i];
  const Argument x(matmul.src_desc(), all.engine, operands.x);
  const Argument w(matmul.weights_desc(), all.engine, operands.w);
  const Argument y(matmul.dst_desc(), all.engine, operands.y);
  const Argument scratch(matmul.scratchpad_desc(), all.engine, operands.scratch);
  const Argument bias(all.shape.bias ? matmul.bias_desc() : matmul.dst_desc(), all.engine, operands.bias);
  if (!x.ok() || !w.ok() || !y.ok() || !scratch.ok() || !bias.ok())
    return resource_exhausted("oneDNN has no memory for the operands of a matmul");
  const std::array<dnnl_exec_arg_t, 5> arguments = {{{DNNL_ARG_SRC, x.get()},
                                                     {DNNL_ARG_WEIGHTS, w.get()},
                                                     {DNNL_ARG_DST, y.get()},
                                                     {DNNL_ARG_SCRATCHPAD, scratch.get()},
                                                     {DNNL_ARG_BIAS, bias.get()}}};
  const dnnl_status_t status =
      dnnl_primitive_execute(all.matmuls[i].get(), all.stream.get(), all.shape.bias ? 5 : 4, arguments.data());
  if (status == dnnl_success) return ok_status();
  return internal_error(fmt::format("oneDNN failed with status {} in a matmul {}x{}x{}", static_cast<int>(status),
                                    rows_of(i), all.shape.columns, all.shape.depth));
}

}  // namespace tessera
