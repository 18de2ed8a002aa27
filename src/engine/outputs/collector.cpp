#include "tessera/engine/outputs/collector.h"

#include "tessera/engine/outputs/prompt_output.h"
#include "tessera/engine/outputs/token_output.h"

namespace tessera {

ForwardInputs Collector::inputs_of(const ScheduledBatch& batch) {
  const auto size = [](std::int64_t rows, std::int64_t columns) { return static_cast<std::size_t>(rows * columns); };
  logits_.resize(batch.wants_logits ? size(batch.batch.num_wanted_rows(), model_.config.num_logits()) : 0);
  hidden_states_.resize(size(std::ssize(batch.hidden_rows), model_.config.hidden_size));
  return {.batch = batch.batch,
          .rope_positions = batch.rope_positions,
          .sampling = batch.sampling,
          .edits = &batch.edits,
          .logprob_targets = batch.logprob_targets,
          .top_logprobs = batch.top_logprobs,
          .logits = logits_,
          .hidden_states = hidden_states_,
          .hidden_rows = batch.hidden_rows};
}

std::optional<RequestEvent> Collector::collect(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry,
                                               const StepOutputs& outputs, StepProfiler* profiler) {
  Sequence& sequence = *entry.sequence;
  std::optional<RequestEvent> made(std::in_place);
  RequestEvent& event = *made;
  event.request = sequence.id;
  if (sequence.request.return_graph_info)
    add_graph_use(sequence.result.graph_uses, batch.phase(), batch.decision, entry.new_tokens + entry.drafts);
  if (entry.prompt_rows > 0 || entry.position == 0)
    add_prompt_rows(entry, outputs, batch.top_logprobs, logits_, model_.config.num_logits());
  if (entry.hidden_count > 0) add_hidden(entry, hidden_states_, model_.config.hidden_size);
  if (entry.row >= 0) {
    add_output(batch, entry, outputs, profiler, event);
  } else if (sequence.request.stop.max_new_tokens == 0 &&
             entry.position + entry.new_tokens == sequence.prompt_tokens()) {
    event.finish = FinishReason::kLength;
  }
  finish_text(sequence, event);
  if (!event.token && event.finish == FinishReason::kNone) made.reset();
  return made;
}

RequestEvent Collector::collect_next(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry,
                                     const StepOutputs& outputs, StepProfiler* profiler) {
  RequestEvent event;
  event.request = entry.sequence->id;
  add_output(batch, entry, outputs, profiler, event);
  finish_text(*entry.sequence, event);
  return event;
}

void Collector::add_output(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry, const StepOutputs& outputs,
                           StepProfiler* profiler, RequestEvent& event) {
  add_token(batch, entry, outputs, model_.end_ids, profiler, event);
  if (!event.token || output_tokens_++ > 0) return;
  first_token_ = {.name = "first token",
                  .begin_s = model_.start.seconds_at(entry.sequence->arrived),
                  .end_s = model_.start.seconds_at(Timeline::Clock::now())};
}

void Collector::finish_text(Sequence& sequence, RequestEvent& event) {
  if (event.finish != FinishReason::kNone && sequence.text) event.text += sequence.text->finish();
  sequence.result.text += event.text;
}

}  // namespace tessera
