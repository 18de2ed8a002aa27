#include "tessera/runner/step_memory.h"

#include <utility>

#include "tessera/runner/graphs/make_executable.h"

namespace tessera {
namespace {

// Unless `stream` is null, waits for the stream's work on destruction. The work uses memory that is freed afterwards.
struct WaitAfterError {
  Stream* stream;
  ~WaitAfterError() {
    if (stream != nullptr) static_cast<void>(stream->synchronize());  // create() returns an earlier error
  }
};

}  // namespace

Result<std::unique_ptr<StepMemory>> StepMemory::create(const RunnerModel& model, Stream& stream) {
  const RunnerOptions& options = model.options;
  const ModelGraphs& graphs = model.graphs;
  Device& device = model.device;
  // The stream fills the memory of these four objects, so they outlive `wait`.
  auto step = std::make_unique<StepBuffer>();
  std::unique_ptr<TargetIds> target_ids;
  std::unique_ptr<AdapterTables> adapters;
  KvStorage kv = TRY(KvStorage::create(cached_graphs(graphs), options.num_pages, device, stream));
  WaitAfterError wait{&stream};

  EditBuffers edits = TRY(EditBuffers::create(device, model.vocab_size));
  EmbeddingRows embeddings = TRY(EmbeddingRows::create(graphs.body, device));
  TRY(embeddings.reserve(options.embedding_rows));
  std::unique_ptr<DraftHidden> draft_hidden;
  if (graphs.draft) draft_hidden = std::make_unique<DraftHidden>(TRY(DraftHidden::create(graphs.draft->body, device)));
  if (graphs.draft && !graphs.draft->target_ids.empty())
    target_ids = TRY(TargetIds::create(graphs.draft->target_ids, device, stream));
  if (graphs.adapted) adapters = TRY(AdapterTables::create(graphs.adapted->layout, device, stream));

  // The plans reserve their part of the step buffer before the inputs do. The short lists of the plans then lie next to
  // the short row inputs at the beginning of the inputs' part, and StepBuffer::upload() can copy both as one range.
  const auto planned = all_graphs(graphs);
  const KernelTable* kernels = TRY(kernels_of(options, device));
  OpPlans plans = TRY(OpPlans::create(
      device, {.graphs = planned, .kernels = *kernels, .limits = plan_limits(options), .num_pages = options.num_pages},
      *step));
  InputBuffers inputs = TRY(InputBuffers::create(device, input_limits(graphs, options), *step));
  TRY(step->allocate(device, stream));
  wait.stream = nullptr;
  return std::unique_ptr<StepMemory>(new StepMemory{.kv = std::move(kv),
                                                    .edits = std::move(edits),
                                                    .embeddings = std::move(embeddings),
                                                    .draft_hidden = std::move(draft_hidden),
                                                    .target_ids = std::move(target_ids),
                                                    .adapters = std::move(adapters),
                                                    .step_buffer = std::move(step),
                                                    .plans = std::move(plans),
                                                    .inputs = std::move(inputs)});
}

void StepMemory::add_to(ExternalValues& externals) const {
  kv.add_to(externals);
  inputs.add_to(externals);
  edits.add_to(externals);
  embeddings.add_to(externals);
  if (draft_hidden != nullptr) draft_hidden->add_to(externals);
  if (target_ids != nullptr) target_ids->add_to(externals);
  if (adapters != nullptr) adapters->add_to(externals);
}

std::int64_t StepMemory::input_bytes() const {
  return inputs.bytes() + edits.bytes() + embeddings.bytes() + (draft_hidden == nullptr ? 0 : draft_hidden->bytes()) +
         (target_ids == nullptr ? 0 : target_ids->bytes());
}

}  // namespace tessera
