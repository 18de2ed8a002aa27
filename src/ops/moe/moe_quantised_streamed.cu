// Binds moe_experts with quantised experts for the rows of a decode step on Hopper (moe_quantised_stream.cuh).
#include "tessera/ops/moe/moe_quantised_streamed.h"

#include <optional>

#include "tessera/ops/moe/moe_quantised_stream.cuh"
#include "tessera/ops/moe/moe_streamed_launch.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::moe;

// Returns where the kernel applies the scales of this matrix. The result is empty if no kernel supports the format.
std::optional<ScaleOf> scale_place(const QuantisedMatrix& m) {
  const QuantisedFormat& f = m.format;
  if (!has_whole_pieces(m) || m.rows > kMostStackRows) return std::nullopt;
  if (has_codes(m)) return ScaleOf::kCodes;
  if (f.values == Values::kE2M1) return ScaleOf::kValues;
  if (f.factor) return std::nullopt;
  if (m.num_groups == 1) return ScaleOf::kSums;
  if (quantised::group_shift_of(m) < 0) return std::nullopt;
  const int quad = f.values == Values::kInt4 ? kQuadColumns<Values::kInt4> : kQuadColumns<Values::kE4M3>;
  if (f.group_cols % quad == 0) return ScaleOf::kSums;
  return f.values == Values::kInt4 ? std::optional(ScaleOf::kValues) : std::nullopt;
}

template <class T, bool kGateUp>
Result<StreamedLaunch<T>> launch_of(const ExpertsProblem& p, const Matmul<T>& m, std::int64_t multiprocessors) {
  const auto with = [&]<Values kValues, ScaleOf kScaleOf>() {
    using Block = QuantisedStream<T, kValues, kScaleOf, kTeamOfBlock>;
    using Warp = QuantisedStream<T, kValues, kScaleOf, 1>;
    if constexpr (kGateUp) {
      return gate_up_launch<T, Block>(p, m, multiprocessors);
    } else {
      return down_launch<T, Block, Warp>(p, m, multiprocessors);
    }
  };
  if (has_codes(m.matrix))
    return m.matrix.format.values == Values::kInt8 ? with.template operator()<Values::kInt8, ScaleOf::kCodes>()
                                                   : with.template operator()<Values::kInt4, ScaleOf::kCodes>();
  switch (m.matrix.format.values) {
    case Values::kE4M3: return with.template operator()<Values::kE4M3, ScaleOf::kSums>();
    case Values::kInt8: return with.template operator()<Values::kInt8, ScaleOf::kSums>();
    case Values::kE2M1: return with.template operator()<Values::kE2M1, ScaleOf::kValues>();
    case Values::kInt4:
    case Values::kBlocks: break;
  }
  return *scale_place(m.matrix) == ScaleOf::kSums ? with.template operator()<Values::kInt4, ScaleOf::kSums>()
                                                  : with.template operator()<Values::kInt4, ScaleOf::kValues>();
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_typed_quantised(const ExpertsProblem& p, std::byte* scratch,
                                                      std::int64_t multiprocessors) {
  const auto [gate_up, down] = matmuls_of<T>(p, 0, reinterpret_cast<T*>(scratch), reinterpret_cast<T*>(p.y));
  return make_streamed<T>(TRY((launch_of<T, true>(p, gate_up, multiprocessors))),
                          TRY((launch_of<T, false>(p, down, multiprocessors))));
}

}  // namespace

bool quantised_streamed_serves(const ExpertsProblem& p) {
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  return half && p.hidden % kStreamedWeightRows == 0 && p.intermediate % (kStreamedWeightRows / 2) == 0 &&
         scale_place(p.gate_up_matrix).has_value() && scale_place(p.down_matrix).has_value() && streamed_runs(p);
}

Result<std::unique_ptr<BoundOp>> bind_quantised_streamed(const ExpertsProblem& p, std::byte* scratch,
                                                         std::int64_t multiprocessors) {
  if (p.dtype == ir::DType::kBFloat16) return bind_typed_quantised<__nv_bfloat16>(p, scratch, multiprocessors);
  return bind_typed_quantised<__half>(p, scratch, multiprocessors);
}

}  // namespace tessera
