#include "tessera/runner/chooser.h"

#include <algorithm>

#include "tessera/model/sampler.h"
#include "tessera/ops/top_logprobs.h"
#include "tessera/piecewise/ladder.h"

namespace tessera {

std::int64_t HeadRows::num_sampled(std::int64_t total) const {
  return std::clamp<std::int64_t>(total - first, 0, count);
}

HeadRows HeadRows::part(std::int64_t from, std::int64_t rows) const {
  const auto rows_of = [&](OutputView view) {
    view.data += view.bytes() / view.dim(0) * from;
    view.dims[0] = rows;
    return view;
  };
  return {.first = first + from, .count = rows, .logits = rows_of(logits), .sampled = rows_of(sampled)};
}

Chooser::Chooser(Parts parts)
    : edits_(parts.edits),
      inputs_(parts.inputs),
      arena_(parts.arena),
      logits_offset_(parts.logits_offset),
      vocab_size_(parts.vocab_size),
      stream_(parts.stream),
      debug_(parts.debug),
      sizes_(decode_ladder(kMaxChoiceRows)),
      choose_("choose", std::move(parts.choose), choice_bucket),
      logprobs_("logprobs", std::move(parts.logprobs), choice_bucket) {}

Status Chooser::run(GraphRunner& runner, std::int64_t size, std::int64_t real_rows) {
  if (debug_ != nullptr) TRY(debug_->before(runner, size));
  TRY(runner.run(size));
  return debug_ == nullptr ? ok_status() : debug_->after(runner, size, real_rows);
}

Status Chooser::check_fresh(const OutputView& view) const {
  return debug_ == nullptr ? ok_status() : debug_->history().check_fresh(view);
}

std::int64_t Chooser::size_for(std::int64_t rows) const { return round_up(sizes_, rows).value_or(kMaxChoiceRows); }

Status Chooser::take(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results) {
  const auto total = static_cast<std::int64_t>(inputs.sampling.size());
  std::int64_t some = 0;
  for (std::int64_t first = 0; first < rows.count; first += some) {
    some = std::min(kMaxChoiceRows, rows.count - first);
    if (inputs.has_edits()) {
      const HeadRows part = rows.part(first, some);
      if (const std::int64_t sampled = part.num_sampled(total); sampled > 0) {
        const std::int64_t fit = edits_.rows_that_fit(*inputs.edits, part.first, sampled);
        if (fit < sampled) some = fit;
      }
    }
    TRY(take_some(inputs, rows.part(first, some), results));
  }
  return ok_status();
}

Status Chooser::take_some(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results) {
  const std::int64_t sampled = rows.num_sampled(static_cast<std::int64_t>(inputs.sampling.size()));
  OutputView ids = rows.sampled;
  if (inputs.has_edits() && sampled > 0) ids = TRY(choose(inputs, rows, sampled));
  TRY(check_fresh(ids));
  if (sampled > 0) TRY(inputs_.keep_sampled(ids.data, rows.first, sampled, stream_));
  if (inputs.logprob_targets.empty()) return ok_status();
  const auto first_given = static_cast<std::size_t>(rows.first + sampled);
  const auto num_given = static_cast<std::size_t>(rows.count - sampled);
  TRY(edits_.stage_targets(ids.data, sampled, inputs.logprob_targets.subspan(first_given, num_given), stream_));
  return read_logprobs(rows, results);
}

// The ids, on the device, of the first `sampled` rows: of those with edits as edited, of the others the same again.
Result<OutputView> Chooser::choose(const ForwardInputs& inputs, const HeadRows& rows, std::int64_t sampled) {
  const std::int64_t size = size_for(sampled);
  const auto first = static_cast<std::size_t>(rows.first);
  const auto count = static_cast<std::size_t>(sampled);
  TRY(choose_.make_ready(size));
  TRY(copy_logits(rows, sampled));
  TRY(edits_.stage_edits(*inputs.edits, rows.first, sampled, size, stream_));
  TRY(inputs_.stage_rows(std::span(inputs.batch.wanted_rows).subspan(first, count),
                         inputs.sampling.subspan(first, count), size, stream_));
  TRY(run(choose_, size, sampled));
  return choose_.executable().output(choose_.bucket(size), 0);
}

Status Chooser::read_logprobs(const HeadRows& rows, StepResults::Slot& results) {
  const std::int64_t size = size_for(rows.count);
  TRY(logprobs_.make_ready(size));
  TRY(copy_logits(rows, rows.count));
  TRY(run(logprobs_, size, rows.count));
  const auto first = static_cast<std::size_t>(rows.first);
  const auto count = static_cast<std::size_t>(rows.count);
  const auto download = [&](std::size_t output, auto to) -> Status {
    const OutputView from = TRY(logprobs_.executable().output(logprobs_.bucket(size), output));
    TRY(check_fresh(from));
    return stream_.download(to.data(), from.data, to.size_bytes());
  };
  TRY(download(0, results.logprobs.subspan(first, count)));
  if (results.top == 0) return ok_status();
  TRY(download(1, results.top_ids.subspan(first * kMaxTopLogprobs, count * kMaxTopLogprobs)));
  return download(2, results.top_logprobs.subspan(first * kMaxTopLogprobs, count * kMaxTopLogprobs));
}

// To where both graphs find them; choose edits them there.
Status Chooser::copy_logits(const HeadRows& rows, std::int64_t count) {
  const std::int64_t row_bytes = vocab_size_ * static_cast<std::int64_t>(sizeof(float));
  TRY(check_fresh(rows.logits));
  // The planned memory has grown so far; isolated, nothing has.
  TRY(arena_.grow(static_cast<std::size_t>(logits_offset_ + kMaxChoiceRows * row_bytes)));
  return stream_.copy(arena_.base() + logits_offset_, rows.logits.data, static_cast<std::size_t>(count * row_bytes));
}

}  // namespace tessera
