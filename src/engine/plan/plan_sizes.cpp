// The steps of a plan that decide sizes: of forwards, requests, images, graphs and memory.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/engine/images/model_processor.h"
#include "tessera/engine/plan/memory_shares.h"
#include "tessera/engine/plan/plan_ladders.h"
#include "tessera/engine/plan/plan_steps.h"
#include "tessera/runner/memory/prediction.h"
#include "tessera/runner/vision/vision_options.h"

namespace tessera {
namespace {

bool is_large_gpu(const DeviceProperties& device) {
  constexpr std::int64_t kBytes = 80'000'000'000;
  return !device.on_host && device.memory_bytes >= kBytes;
}

Result<std::int64_t> context_of(const EngineOptions& options, std::int64_t positions) {
  if (options.context_length == 0) return positions;
  if (options.context_length <= positions) return options.context_length;
  return invalid_argument(
      fmt::format("context_length: {} is more than the model's {} positions", options.context_length, positions));
}

Result<std::int64_t> tokens_of_forward(std::int64_t chunk, std::int64_t context, const DeviceProperties& properties) {
  if (chunk == 0) return default_chunk(properties);
  if (chunk != kWholePrompts) return chunk;
  if (context <= kMaxLadderSize) return context;
  return invalid_argument(
      fmt::format("chunked_prefill_size: {} with a context of {} is not accepted; accepted is a "
                  "context_length of at most {}",
                  chunk, context, kMaxLadderSize));
}

// Returns the number of patches of the largest image that the model's processor makes. Returns 0 if the processor's
// settings cannot be read. In that case, requests with images get the error.
std::int64_t largest_image(const EngineOptions& options) {
  const Result<ImageProcessorConfig> processor = read_model_processor(options.model_path, options.projector_path);
  if (!processor.ok()) return 0;
  return processor->max_pixels / (std::int64_t{processor->patch_size} * processor->patch_size);
}

// Halves the tower's largest forward until it takes at most a sixteenth of the memory, or has `usual` patches.
Status fit_largest_image(PlanDraft& draft, std::int64_t usual) {
  EnginePlan& plan = draft.plan;
  const std::int64_t wanted = plan.runner.vision.max_patches;
  std::int64_t& patches = plan.runner.vision.max_patches;
  const std::int64_t most = draft.properties().memory_bytes / 16;
  const std::int64_t merged = plan.graphs.vision->config.merged_patches();
  while (patches > usual && TRY(predict_tower(plan.graphs, plan.runner, draft.device)) > most)
    patches = std::max(usual, patches / 2) / merged * merged;
  if (patches == wanted) return ok_status();
  plan.notes.push_back(
      fmt::format("images are resized to at most {} patches, not the {} that the model's processor "
                  "makes: the tower's largest forward may take a sixteenth of the memory, {} MiB",
                  patches, wanted, most >> 20));
  return ok_status();
}

// The number of graphs that are kept if the tower is captured for exact sizes.
constexpr std::int64_t kExactVisionGraphs = 32;

}  // namespace

std::int64_t default_chunk(const DeviceProperties& device) {
  if (device.on_host) return 2048;
  return is_large_gpu(device) ? 8192 : 4096;
}

std::int64_t default_running(const DeviceProperties& device) { return is_large_gpu(device) ? 512 : 256; }

Status choose_limits(PlanDraft& draft) {
  const EngineOptions& options = draft.options;
  RunnerOptions& runner = draft.plan.runner;
  runner.page_size = options.page_size;
  draft.plan.max_running =
      options.max_running_requests > 0 ? options.max_running_requests : default_running(draft.properties());
  runner.context_length = TRY(context_of(options, draft.plan.config.max_position_embeddings));
  runner.max_tokens = TRY(tokens_of_forward(options.chunked_prefill_size, runner.context_length, draft.properties()));
  return ok_status();
}

// Gives a forward room for the drafts of all running requests, but for no more rows than the largest decode graph has
// by default or by the options, and for no more than a forward has tokens. Smaller graphs do not lower this limit,
// because rows beyond the graphs can be computed.
Status choose_rows(PlanDraft& draft) {
  EnginePlan& plan = draft.plan;
  const std::int64_t wanted = plan.max_running * (1 + plan.drafts.most_of_any_source());
  const std::int64_t most =
      std::min(plan.runner.max_tokens, std::max(kDefaultMaxDecode, asked_decode_rows(draft.options.graphs)));
  plan.runner.max_requests = std::max(plan.max_running, std::min(wanted, most));
  return ok_status();
}

// Reserves as many image rows as image_cache_bytes holds. If this option is 0, reserves the rows of the largest image
// that processors make, but at most as many rows as the context has tokens.
Status reserve_images(PlanDraft& draft) {
  constexpr std::int64_t kLargestImage = 16384;
  EnginePlan& plan = draft.plan;
  const std::int64_t bytes = draft.options.image_cache_bytes;
  if (!plan.config.images) return ok_status();
  const auto value_bytes = static_cast<std::int64_t>(ir::dtype_size(plan.model.dtype));
  plan.runner.embedding_rows =
      bytes == 0 ? std::min(plan.runner.context_length, kLargestImage)
                 : std::max<std::int64_t>(bytes / (plan.config.embedding_row_values() * value_bytes), 1);
  return ok_status();
}

Status choose_ladders(PlanDraft& draft) { return plan_ladders(draft.options, draft.plan); }

// Chooses the tower's sizes. The largest image has at most as many tokens as the context. The tower has graphs if the
// language model has some.
Status choose_tower(PlanDraft& draft) {
  const EnginePlan& plan = draft.plan;
  if (!plan.graphs.vision) return ok_status();
  VisionOptions& vision = draft.plan.runner.vision;
  const std::int64_t merged = plan.graphs.vision->config.merged_patches();
  const std::int64_t usual = vision.max_patches;
  const std::int64_t largest = std::max(usual, largest_image(draft.options));
  vision.max_patches = std::min(largest / merged, plan.runner.context_length) * merged;
  TRY(fit_largest_image(draft, usual));
  vision.graphs = plan.runner.graphs.prefill || plan.runner.graphs.decode;
  if (!vision.graphs) return ok_status();
  if (draft.options.graphs.vit_cuda_graph) {
    vision.exact_graphs = kExactVisionGraphs;
  } else {
    vision.sizes = default_vision_sizes(merged, vision.max_patches);
  }
  return ok_status();
}

Status divide_memory(PlanDraft& draft) { return plan_memory_shares(draft.options, draft.device, draft.plan); }

}  // namespace tessera
