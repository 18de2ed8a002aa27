#include "tessera/engine/plan/weight_load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/model/families/draft_model.h"
#include "tessera/model/families/eagle3.h"
#include "tessera/model/gguf/tensor_names.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/unread_tensors.h"

namespace tessera {
namespace {

// Refuses tensors of a GGUF file that the model does not use, because its results would differ from those that the
// file's author means. Some tensors that are not used are no fault: those of next-token layers, the projections of keys
// and values in layers that use the keys and values of an earlier layer, and the head of a model that makes embeddings
// or scores.
Status check_gguf_tensors(const Checkpoint& checkpoint, std::span<const WeightSpec> weights, const EnginePlan& plan) {
  constexpr std::size_t kMostShown = 8;
  const ModelConfig& config = plan.config;
  const bool without_head = plan.embedding || config.num_labels > 0;
  std::vector<std::string_view> unread = unread_gguf_tensors(checkpoint, weights);
  std::erase_if(unread, [&](std::string_view tensor) {
    if (without_head && tensor == "output.weight") return true;
    const GgufTensorName name = parse_tensor_name(tensor);
    const std::int64_t layer = name.layer.value_or(-1);
    const std::int64_t shared = config.gemma4 ? config.gemma4->num_shared_layers : 0;
    if (layer >= config.num_hidden_layers - shared && layer < config.num_hidden_layers)
      return name.rest.starts_with("attn_k") || name.rest.starts_with("attn_v");
    return layer >= config.num_hidden_layers && layer < config.num_hidden_layers + config.draft_layers;
  });
  if (unread.empty()) return ok_status();
  const std::size_t shown = std::min(unread.size(), kMostShown);
  return unimplemented(
      fmt::format("{}: {} tensors have no place in the model: {}{}; accepted: the tensors that its architecture and "
                  "metadata describe",
                  checkpoint.model_path(), unread.size(),
                  fmt::join(unread.begin(), unread.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                  shown < unread.size() ? ", …" : ""));
}

}  // namespace

Result<WeightSource> weight_source(const EngineOptions& options, const EnginePlan& plan) {
  if (options.load_format == LoadFormat::kDummy) return dummy_source(options.random_seed);
  std::shared_ptr<const Checkpoint> checkpoint = plan.checkpoint;
  if (checkpoint == nullptr)
    checkpoint = std::make_shared<const Checkpoint>(TRY(Checkpoint::open(options.model_path, gguf_options(options))));
  const std::vector<WeightSpec> weights = all_weights(plan.graphs);
  TRY(check_gguf_tensors(*checkpoint, weights, plan));
  const std::string unread = unread_tensors(*checkpoint, weights);
  const bool has_idle_layer = plan.config.draft_layers > 0 && !plan.drafts.by_layer();
  if (!unread.empty())
    log_info("engine", "tensors of the checkpoint that text generation does not read: {}{}", unread,
             has_idle_layer ? "; those of a next-token layer are read with --speculative-algorithm MTP or AUTO" : "");
  WeightSource source = checkpoint_source(std::move(checkpoint));
  if (plan.model.draft_model != nullptr) return with_draft_model(std::move(source), *plan.model.draft_model);
  return plan.model.eagle == nullptr ? source : with_eagle3(std::move(source), *plan.model.eagle);
}

WeightLoad::WeightLoad(std::vector<WeightSpec> specs, const Weights& weights, WeightSource source, Device& device,
                       bool show_progress)
    : specs_(std::move(specs)),
      memory_(weights.memory()),
      addresses_(weights.addresses()),
      source_(std::move(source)),
      device_(device),
      show_progress_(show_progress) {}

Status WeightLoad::start() {
  const bool beside = !device_.properties().on_host;
  times_ = std::async(beside ? std::launch::async : std::launch::deferred, [this] { return run(); });
  return beside ? ok_status() : times_.get().status();
}

Result<LoadTimes> WeightLoad::run() {
  // Leaves some cores to the capturing thread. If that thread preempted a worker, the other workers would wait whole
  // time slices for that worker.
  if (!device_.properties().on_host) set_worker_threads(std::max(1, worker_threads() * 3 / 4));
  LoadTimes times{.begin = std::chrono::steady_clock::now()};
  TRY(fill_weights(specs_, addresses_, source_, device_, show_progress_));
  times.end = std::chrono::steady_clock::now();
  return times;
}

}  // namespace tessera
