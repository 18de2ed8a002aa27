#include "tessera/engine/plan/weight_load.h"

#include <algorithm>

#include "tessera/base/log.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/model/families/draft_model.h"
#include "tessera/model/families/eagle3.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/unread_tensors.h"

namespace tessera {

Result<WeightSource> weight_source(const EngineOptions& options, const EnginePlan& plan) {
  if (options.load_format == LoadFormat::kDummy) return dummy_source(options.random_seed);
  std::shared_ptr<const Checkpoint> checkpoint = plan.checkpoint;
  if (checkpoint == nullptr)
    checkpoint = std::make_shared<const Checkpoint>(TRY(Checkpoint::open(options.model_path, options.projector_path)));
  const std::string unread = unread_tensors(*checkpoint, all_weights(plan.graphs));
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
