// Computes a linear by oneDNN's matmul primitive, which is created once when the operator is bound.
#include <fmt/format.h>

#include <array>
#include <dnnl.hpp>

#include "tessera/base/hash.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ops/linear/linear_cpu.h"

namespace tessera {
namespace {

using Tag = dnnl::memory::format_tag;

dnnl::memory::data_type dnnl_type(ir::DType dtype) {
  return dtype == ir::DType::kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

enum class Residual { kNone, kInPlace, kSeparate };

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const LinearProblem& p, bool bias,
                                      Residual residual) {
  const dnnl::memory::data_type type = dnnl_type(p.dtype);
  const dnnl::memory::desc x({p.m, p.k}, type, Tag::ab);
  const dnnl::memory::desc w({p.k, p.n}, type, Tag::ba);  // w[n, k] row-major, read as its transpose
  const dnnl::memory::desc y({p.m, p.n}, type, Tag::ab);
  dnnl::post_ops post_ops;
  if (residual == Residual::kInPlace) post_ops.append_sum(1.0f);
  if (residual == Residual::kSeparate) post_ops.append_binary(dnnl::algorithm::binary_add, y);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(post_ops);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (!bias) return {dnnl::matmul::desc(x, w, y), attributes, engine};
  return {dnnl::matmul::desc(x, w, dnnl::memory::desc({1, p.n}, type, Tag::ab), y), attributes, engine};
}

std::uint64_t hash_of(std::string_view text) {
  Hasher hash;
  hash.add(text);
  return hash.finish().low;
}

class OneDnnLinear final : public BoundOp {
 public:
  OneDnnLinear(const LinearProblem& problem, Residual residual)
      : problem_(problem),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        description_(describe(engine_, problem, problem.bias != nullptr, residual)),
        primitive_(description_),
        choice_(hash_of(description_.impl_info_str())) {
    add(DNNL_ARG_SRC, description_.src_desc(), problem.x);
    add(DNNL_ARG_WEIGHTS, description_.weights_desc(), problem.w);
    add(DNNL_ARG_DST, description_.dst_desc(), problem.y);
    add(DNNL_ARG_SCRATCHPAD, description_.scratchpad_desc(), problem.workspace);
    if (problem.bias) add(DNNL_ARG_BIAS, description_.bias_desc(), problem.bias);
    if (residual == Residual::kSeparate)
      add(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, description_.dst_desc(), problem.residual);
  }

  Status enqueue(Stream& stream) const override {
    const OneDnnLinear* self = this;
    return as_cpu(stream).launch("linear", [self] { return self->run(); });
  }

 private:
  void add(int argument, const dnnl::memory::desc& description, const std::byte* data) {
    // oneDNN reads operands through non-const pointers.
    memories_[num_arguments_] = dnnl::memory(description, engine_, const_cast<std::byte*>(data));
    arguments_[num_arguments_] = {argument, memories_[num_arguments_].get()};
    ++num_arguments_;
  }

  std::uint64_t choice() const override { return choice_; }

  Status run() const {
    // Calls the C function, which builds no map of arguments and does not throw.
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(num_arguments_), arguments_.data());
    if (status == dnnl_success) return ok_status();
    return internal_error(fmt::format("oneDNN failed with status {} in a matmul {}x{}x{}", static_cast<int>(status),
                                      problem_.m, problem_.n, problem_.k));
  }

  LinearProblem problem_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul::primitive_desc description_;
  dnnl::matmul primitive_;
  std::array<dnnl::memory, 6> memories_;
  std::array<dnnl_exec_arg_t, 6> arguments_{};
  std::size_t num_arguments_ = 0;
  std::uint64_t choice_;  // identifies the library's implementation
};

Status dnnl_failure(const LinearProblem& p, const dnnl::error& error) {
  return internal_error(
      fmt::format("oneDNN has no matmul {}x{}x{} of {}: {}", p.m, p.n, p.k, ir::dtype_name(p.dtype), error.what()));
}

}  // namespace

bool onednn_takes(ir::DType dtype) {
  if (dtype == ir::DType::kFloat32) return true;
  // On CPUs without AVX-512 the library's bfloat16 matmul is a slow reference loop.
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  return dtype == ir::DType::kBFloat16 &&
         (static_cast<unsigned>(isa) & static_cast<unsigned>(dnnl_cpu_isa_avx512_core)) ==
             static_cast<unsigned>(dnnl_cpu_isa_avx512_core);
}

Result<std::size_t> onednn_workspace_bytes(const LinearProblem& problem, bool has_bias, bool has_residual) {
  try {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    // Addresses are not known yet, so the residual may be in y's memory or elsewhere. The scratch memory is large
    // enough for both cases.
    if (!has_residual) return describe(engine, problem, has_bias, Residual::kNone).scratchpad_desc().get_size();
    return std::max(describe(engine, problem, has_bias, Residual::kInPlace).scratchpad_desc().get_size(),
                    describe(engine, problem, has_bias, Residual::kSeparate).scratchpad_desc().get_size());
  } catch (const dnnl::error& error) {
    return dnnl_failure(problem, error);
  }
}

Result<std::unique_ptr<BoundOp>> bind_onednn(const LinearProblem& problem) {
  const Residual residual = problem.residual == nullptr     ? Residual::kNone
                            : problem.residual == problem.y ? Residual::kInPlace
                                                            : Residual::kSeparate;
  try {
    return std::unique_ptr<BoundOp>(std::make_unique<OneDnnLinear>(problem, residual));
  } catch (const dnnl::error& error) {
    return dnnl_failure(problem, error);
  }
}

}  // namespace tessera
