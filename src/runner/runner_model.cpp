#include "tessera/runner/runner_model.h"

#include <utility>

namespace tessera {

Result<RunnerModel> RunnerModel::create(ModelGraphs graphs, Weights weights, Device& device, RunnerOptions options) {
  RunnerModel model{
      .device = device, .options = std::move(options), .graphs = std::move(graphs), .weights = std::move(weights)};
  model.vocab_size = vocabulary_of(model.graphs);
  model.hidden_size = *model.graphs.body.value(model.graphs.body.outputs[0]).type.shape.back().constant();
  model.handed_over = TRY(tessera::handed_over(model.graphs, model.options));
  model.handed_over_bytes = TRY(tessera::handed_over_bytes(model.graphs, model.options));
  model.choice_logits_offset = TRY(tessera::choice_logits_offset(model.graphs, model.options));
  return model;
}

}  // namespace tessera
