// Opens the checkpoint, in which several steps of a plan look up stored tensors.
#include "tessera/engine/plan/plan_steps.h"

namespace tessera {

Result<std::shared_ptr<const Checkpoint>> open_checkpoint(PlanDraft& draft) {
  if (draft.stored == nullptr)
    draft.stored = std::make_shared<const Checkpoint>(
        TRY(Checkpoint::open(draft.options.model_path, gguf_options(draft.options))));
  return draft.stored;
}

Result<std::shared_ptr<const Checkpoint>> find_checkpoint(PlanDraft& draft) {
  if (draft.options.load_format == LoadFormat::kDummy) return std::shared_ptr<const Checkpoint>();
  Result<std::shared_ptr<const Checkpoint>> stored = open_checkpoint(draft);
  if (stored.status().code() == StatusCode::kNotFound) return std::shared_ptr<const Checkpoint>();
  return stored;
}

}  // namespace tessera
