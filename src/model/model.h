// From a config to graphs: what every architecture gives the runner.
//
//   body     input_ids, positions … → hidden [T, hidden]     split at attention, captured by pieces
//   head     hidden, wanted_rows → logits f32[R, vocab]
//   sampler  logits, sampling parameters → sampled_ids i32[R]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/config.h"
#include "tessera/model/weights.h"

namespace tessera {

struct ModelOptions {
  ir::DType dtype = ir::DType::kFloat32;  // of weights, activations and the KV cache
  std::int64_t page_size = 16;            // tokens of a KV cache page
  std::int64_t max_requests = 256;        // of a forward: length of last_ids
  int tp_rank = 0;
  int tp_size = 1;  // ranks that share every layer (column- and row-parallel matmuls)
};

struct ModelGraphs {
  ir::Graph body;
  ir::Graph head;
  ir::Graph sampler;
  std::vector<WeightSpec> weights;  // of body and head
};

// Fails with kUnimplemented or kInvalidArgument where the config cannot be built (heads that do not
// divide among the ranks). Needs no weights and no device.
Result<ModelGraphs> build_model(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops);

// Names of the static inputs that the runner stages before every forward.
namespace input_names {
inline constexpr std::string_view kInputIds = "input_ids";              // i32[T]
inline constexpr std::string_view kInputRows = "input_rows";            // i32[T]: row of last_ids, or -1
inline constexpr std::string_view kLastIds = "last_ids";                // i32[max_requests]: what the last step sampled
inline constexpr std::string_view kPositions = "positions";             // i32[T]
inline constexpr std::string_view kSlots = "slots.";                    // i32[T], "slots.<cache group>"
inline constexpr std::string_view kWantedRows = "wanted_rows";          // i32[R]
inline constexpr std::string_view kTemperature = "temperature";         // f32[R]
inline constexpr std::string_view kTopK = "top_k";                      // i32[R]
inline constexpr std::string_view kTopP = "top_p";                      // f32[R]
inline constexpr std::string_view kSeed = "seed";                       // i64[R]
inline constexpr std::string_view kChoice = "choice";                   // i32[R]
inline constexpr std::string_view kSamplePosition = "sample_position";  // i32[R]
}  // namespace input_names

}  // namespace tessera
