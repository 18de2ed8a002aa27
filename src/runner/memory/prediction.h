// Predicts a runner's memory from shapes alone, before weights are loaded or anything is captured.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/model.h"
#include "tessera/runner/graphs/graph_runner.h"
#include "tessera/runner/memory/memory_report.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// How many sizes the prediction plans. With kTotals, it plans only the largest size of each runner, in a few
// milliseconds for a large model. This suffices for the totals, because all sizes share one arena. With kEverySize, the
// prediction plans every size in tens of milliseconds.
enum class PredictionDetail : std::uint8_t { kTotals, kEverySize };

// Predicts the memory of every MemoryUse except weights and KV cache. The caller computes from the result how much
// memory is left for the KV cache. options.num_pages may still be 1 for each group, since no activation depends on the
// cache's size.
Result<MemoryReport> predict_memory(const ModelGraphs& graphs, const RunnerOptions& options, Device& device,
                                    PredictionDetail detail = PredictionDetail::kTotals);
// Makes the same prediction from existing runners, but leaves out the vision tower.
Result<MemoryReport> predict_memory(std::span<const GraphRunner> runners, const ModelGraphs& graphs,
                                    const RunnerOptions& options, Device& device, PredictionDetail detail);

// Predicts the memory of the vision tower's largest forward, which has options.vision.max_patches patches. Returns the
// bytes of its arena, workspace and static inputs. Precondition: the model has a tower.
Result<std::int64_t> predict_tower(const ModelGraphs& graphs, const RunnerOptions& options, Device& device);

// Adds a vision tower to a prediction. The tower's forwards share arena and workspace with the other forwards.
// `input_bytes` is the size of the tower's static inputs.
Status add_vision(const GraphRunner& tower, std::int64_t input_bytes, const DeviceProperties& device,
                  PredictionDetail detail, MemoryReport& report);

}  // namespace tessera
