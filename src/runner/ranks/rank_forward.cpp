#include "tessera/runner/ranks/rank_forward.h"

namespace tessera {
namespace {

static_assert(sizeof(SampleRow) == 32, "elements of lists have no padding");

}  // namespace

void ForwardPacker::pack(const ForwardInputs& inputs, const Decision& decision, MessageWriter& to) {
  to.word(static_cast<std::int64_t>(decision.runner));
  to.word(decision.size);
  to.word(decision.padding);
  to.word(static_cast<std::int64_t>(decision.reason));
  to.word(static_cast<std::int64_t>(decision.form));
  to.word(decision.adapters ? 1 : 0);
  to.word(inputs.logits.empty() ? 0 : 1);
  to.word(inputs.hidden_states.empty() ? 0 : 1);
  to.word(inputs.force_eager ? 1 : 0);
  to.word(inputs.replay_graphs ? 1 : 0);
  to.word(inputs.top_logprobs);

  batch_.pack(inputs.batch, to);
  for (const std::vector<std::int32_t>& axis : inputs.rope_positions) to.list(axis);
  to.list(inputs.sampling);
  to.word(inputs.has_edits() ? 1 : 0);
  if (inputs.has_edits()) {
    to.list(inputs.edits->starts);
    to.list(inputs.edits->ids);
    to.list(inputs.edits->penalties);
    to.list(inputs.edits->offsets);
    to.list(inputs.edits->masked_rows);
    to.list(inputs.edits->masks);
  }
  to.list(inputs.logprob_targets);
  to.list(inputs.hidden_rows);
}

Status ReceivedForward::unpack(MessageReader& from) {
  TRY(unpack_decision(from));
  TRY(batch_.unpack(from));
  for (std::vector<std::int32_t>& axis : rope_positions_) TRY(from.list("rope_positions", axis));
  TRY(from.list("sampling", sampling_));
  has_edits_ = TRY(from.choice("edits", 1)) == 1;
  edits_.clear();
  if (has_edits_) {
    TRY(from.list("edits.starts", edits_.starts));
    TRY(from.list("edits.ids", edits_.ids));
    TRY(from.list("edits.penalties", edits_.penalties));
    TRY(from.list("edits.offsets", edits_.offsets));
    TRY(from.list("edits.masked_rows", edits_.masked_rows));
    TRY(from.list("edits.masks", edits_.masks));
  }
  TRY(from.list("logprob_targets", logprob_targets_));
  TRY(from.list("hidden_rows", hidden_rows_));
  return from.finish();
}

Status ReceivedForward::unpack_decision(MessageReader& from) {
  decision_.runner =
      static_cast<RunnerKind>(TRY(from.choice("runner", static_cast<std::int64_t>(RunnerKind::kDecode))));
  decision_.size = TRY(from.word("size"));
  decision_.padding = TRY(from.word("padding"));
  decision_.reason = static_cast<Reason>(TRY(from.choice("reason", kNumReasons - 1)));
  decision_.form = static_cast<GraphForm>(TRY(from.choice("form", static_cast<std::int64_t>(GraphForm::kFull))));
  decision_.adapters = TRY(from.choice("adapters", 1)) == 1;
  wants_logits_ = TRY(from.choice("logits", 1)) == 1;
  wants_hidden_ = TRY(from.choice("hidden_states", 1)) == 1;
  force_eager_ = TRY(from.choice("force_eager", 1)) == 1;
  replay_graphs_ = TRY(from.choice("replay_graphs", 1)) == 1;
  top_logprobs_ = static_cast<int>(TRY(from.choice("top_logprobs", INT32_MAX)));
  return ok_status();
}

ForwardInputs ReceivedForward::inputs(std::span<float> logits, std::span<float> hidden_states) const {
  return {.batch = batch_.batch(),
          .rope_positions = rope_positions_,
          .sampling = sampling_,
          .edits = has_edits_ ? &edits_ : nullptr,
          .logprob_targets = logprob_targets_,
          .top_logprobs = top_logprobs_,
          .logits = logits,
          .hidden_states = hidden_states,
          .hidden_rows = hidden_rows_,
          .force_eager = force_eager_,
          .replay_graphs = replay_graphs_};
}

}  // namespace tessera
