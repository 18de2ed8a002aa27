#include "tessera/engine/steps/layer_drafts.h"

#include <algorithm>
#include <iterator>

#include "tessera/base/log.h"
#include "tessera/engine/schedule/batch_rows.h"
#include "tessera/engine/schedule/step_drafts.h"

namespace tessera {
namespace {

// Among the steps with drafts, one in every kMeasuredEvery waits for the device and times the drafts. The first two
// steps are not timed, because work that is done only once may slow them.
constexpr std::int64_t kMeasuredEvery = 64;
constexpr std::int64_t kFirstMeasured = 2;
// After a forward, a draft model reads at most this many unread rows of earlier forwards. No step is then delayed for
// long.
constexpr std::int64_t kMostEarlierRows = 1024;
// If more than 1 / kTokensOfMissing of the computed prompt tokens lack draft keys, the drafter is told that the layer
// lacks keys.
constexpr std::int64_t kTokensOfMissing = 8;

// Logs an error of the layer. Does not log a lost rank, because the next forward reports it and ends the engine.
void log_failure(bool is_model, const Status& status) {
  if (status.code() == StatusCode::kDeviceLost) return;
  log_warn("engine", "the {} failed, so one step runs without its drafts: {}",
           is_model ? "draft model" : "next-token layer", status.to_string());
}

std::size_t element_of(const ScheduledBatch::Entry& entry, std::int64_t draft) {
  return static_cast<std::size_t>(entry.first_token + entry.new_tokens + draft);
}

// Returns whether the layer or the draft model makes the entry's drafts.
bool has_layer_drafts(const ScheduledBatch::Entry& entry) {
  return entry.sequence != nullptr && entry.drafts > 0 && entry.sequence->drafter &&
         entry.sequence->drafter->proposed_by_layer();
}

}  // namespace

LayerDrafts::LayerDrafts(ModelRunner& runner, const CacheManager& cache)
    : runner_(runner), cache_(cache), is_model_(!runner.model().graphs.draft->body_output), keys_(cache) {}

void LayerDrafts::clear() {
  clear_rows(cache_.num_groups(), batch_, rope_positions_);
  hidden_rows_.clear();
}

Status LayerDrafts::run_body(std::optional<std::int64_t> first_id) {
  finish_rows(batch_, rope_positions_);
  return runner_.drafts().read(
      {.batch = batch_, .rope_positions = rope_positions_, .rows = hidden_rows_, .first_id = first_id});
}

Result<bool> LayerDrafts::drafts_at_once(const ScheduledBatch& batch) {
  // A request that has drafts in this batch will probably draft again in the next step. If no request has drafts,
  // the first drafts would probably not be used, so they are not made now.
  if (is_model_ || std::ranges::none_of(batch.entries, has_layer_drafts)) return false;
  return runner_.drafts().has_graph(batch_);
}

std::int64_t LayerDrafts::Tokens::count() const {
  return entry.row < 0 ? std::ssize(entry.sequence->tokens) : entry.next_token + kept + 1;
}

TokenId LayerDrafts::Tokens::at(std::int64_t position) const {
  if (entry.row < 0 || position < entry.next_token) return entry.sequence->tokens[static_cast<std::size_t>(position)];
  return sampled[static_cast<std::size_t>(entry.row + position - entry.next_token)];
}

void LayerDrafts::add_layer_rows(const Tokens& tokens) {
  const ScheduledBatch::Entry& entry = tokens.entry;
  Sequence& sequence = *entry.sequence;
  // The layer reads a row together with the token after it. The last row of a finished prompt is left out if that token
  // does not exist.
  const std::int64_t end = std::min(tokens.computed(), tokens.count() - 1);
  if (end <= entry.position) return;
  append_rows(sequence, entry.position, end - entry.position, cache_, batch_, rope_positions_);
  // In a decode, attention treats each row as a request of its own, as in the forward that verified these rows.
  batch_.draft_lens.resize(batch_.query_lens.size());
  if (entry.new_tokens == 1) batch_.draft_lens.back() = static_cast<std::int32_t>(end - entry.position - 1);
  for (std::int64_t position = entry.position; position < end; ++position) {
    batch_.input_ids.push_back(tokens.at(position + 1));
    batch_.input_rows.push_back(-1);
    hidden_rows_.push_back(static_cast<std::int32_t>(entry.first_token + position - entry.position));
  }
  if (!sequence.drafter || !sequence.decodes()) return;
  if (entry.position < sequence.prompt_tokens())
    sequence.drafter->set_lacks_keys(kTokensOfMissing * keys_.count_missing(sequence, entry.position) > entry.position);
  sequence.drafter->set_layer_row(static_cast<std::int32_t>(batch_.wanted_rows.size()));
  batch_.wanted_rows.push_back(static_cast<std::int32_t>(batch_.num_tokens() - 1));
}

std::int64_t LayerDrafts::add_model_rows(const ScheduledBatch& batch, const Tokens& tokens, std::int64_t most_earlier) {
  const ScheduledBatch::Entry& entry = tokens.entry;
  Sequence& sequence = *entry.sequence;
  const std::int64_t end = std::min(tokens.computed(), tokens.count());
  if (complete_ && has_layer_drafts(entry)) {
    // To make the entry's drafts, the draft model read the token before the first draft, and all drafts but the last.
    const std::int64_t read = std::min(entry.new_tokens - 1 + entry.drafts, end - entry.position);
    keys_.set(batch.batch, entry.first_token, read, true);
  }
  if (keys_.table(sequence) != sequence.draft_keys_table) sequence.draft_keys = 0;  // the sequence got other pages
  sequence.draft_keys_table = keys_.table(sequence);
  const std::int64_t begin = sequence.draft_keys = keys_.first_missing(sequence, sequence.draft_keys, end);
  const bool is_behind = begin < entry.position;
  if (is_behind && !sequence.drafter) return 0;  // the sequence's later rows would read the missing keys
  const std::int64_t own = end - entry.position;
  const std::int64_t count = std::min(end - begin, own + most_earlier);
  if (sequence.drafter) {
    sequence.drafter->set_behind(begin + count < end);
    if (begin + count == end && sequence.decodes()) sequence.drafter->set_layer_row(0);
  }
  if (count == 0) return 0;
  append_rows(sequence, begin, count, cache_, batch_, rope_positions_);
  for (std::int64_t position = begin; position < begin + count; ++position) {
    batch_.input_ids.push_back(tokens.at(position));
    batch_.input_rows.push_back(-1);
    hidden_rows_.push_back(0);
  }
  return std::max<std::int64_t>(count - own, 0);
}

void LayerDrafts::read(const ScheduledBatch& batch, std::span<const TokenId> sampled) {
  clear();
  rows_.clear();
  first_drafts_ = 0;
  skip(batch);
  std::int64_t most_earlier = std::min(kMostEarlierRows, runner_.options().max_tokens - batch.batch.num_tokens());
  for (const ScheduledBatch::Entry& entry : batch.entries) {
    if (entry.sequence == nullptr) continue;
    if (entry.sequence->drafter) entry.sequence->drafter->set_layer_row(std::nullopt);
    const Tokens tokens{.entry = entry, .sampled = sampled, .kept = kept_drafts(batch, entry, sampled)};
    if (entry.sequence->is_done(tokens.kept)) continue;
    if (is_model_)
      most_earlier -= add_model_rows(batch, tokens, most_earlier);
    else
      add_layer_rows(tokens);
  }
  if (batch_.input_ids.empty()) return;
  const Result<bool> at_once = drafts_at_once(batch);
  Status status = at_once.status();
  if (status.ok()) status = run_body(*at_once ? std::optional<std::int64_t>(0) : std::nullopt);
  if (status.ok()) status = runner_.drafts().settle();
  if (status.ok() && *at_once) first_drafts_ = batch_.num_wanted_rows();
  read_rows_ = batch_.wanted_rows;
  if (status.ok()) {
    keys_.set(batch_, 0, batch_.num_tokens(), true);
  } else {
    log_failure(is_model_, status);
    for (const ScheduledBatch::Entry& entry : batch.entries)
      if (entry.sequence != nullptr && entry.sequence->drafter) entry.sequence->drafter->set_layer_row(std::nullopt);
  }
}

void LayerDrafts::skip(const ScheduledBatch& batch) { keys_.set(batch.batch, 0, batch.batch.num_tokens(), false); }

LayerDrafts::Row LayerDrafts::first_row(ScheduledBatch::Entry& entry) const {
  if (is_model_) return {.entry = &entry, .hidden = 0, .id = -1};
  const std::int32_t number = *entry.sequence->drafter->layer_row();
  return {.entry = &entry, .hidden = read_rows_[static_cast<std::size_t>(number)], .id = number};
}

void LayerDrafts::complete(ScheduledBatch& batch) {
  rows_.clear();
  made_ = 0;
  complete_ = false;
  for (ScheduledBatch::Entry& entry : batch.entries)
    if (has_layer_drafts(entry)) rows_.push_back(first_row(entry));
  if (rows_.empty()) return;
  const Status status = make(batch);
  complete_ = status.ok();
  if (complete_) return;
  log_failure(is_model_, status);
  for (const ScheduledBatch::Entry& entry : batch.entries)
    for (std::int64_t draft = 0; draft < entry.drafts; ++draft) batch.batch.input_rows[element_of(entry, draft)] = -1;
}

Status LayerDrafts::make(ScheduledBatch& batch) {
  const bool measured = steps_++ % kMeasuredEvery == kFirstMeasured;
  if (measured) TRY(runner_.stream().synchronize());
  const Clock::time_point begin = Clock::now();
  std::int64_t draft = 0;
  if (!measured && take_first(batch)) ++draft;  // a measured step makes all of its drafts here
  for (; !rows_.empty(); ++draft) {
    TRY(make(draft, batch));
    drop_finished(draft);
  }
  TRY(runner_.drafts().fetch(made_));
  const bool has_stages = runner_.options().has_stages();
  if (!measured && !batch.has_draft_masks() && !has_stages) return ok_status();
  TRY(runner_.stream().synchronize());
  if (measured) {
    const std::chrono::duration<double, std::milli> taken = Clock::now() - begin;
    draft_ms_ = taken.count() / static_cast<double>(draft);
  }
  write_ids(batch);
  for (const ScheduledBatch::Entry& entry : batch.entries)
    for (std::int64_t i = 0; i < entry.drafts; ++i) {
      entry.sequence->drafts[static_cast<std::size_t>(i)] = batch.draft_of(entry, i);
      // Makes the forward take the draft's id from input_ids and not from last_ids on the device. The first stage of a
      // pipeline embeds the drafts, but only the last stage has them on its devices.
      if (has_stages) batch.batch.input_rows[element_of(entry, i)] = -1;
    }
  return ok_status();
}

void LayerDrafts::place(Row& row, std::int32_t id, std::int64_t draft, ScheduledBatch& batch) {
  row.id = id;
  batch.batch.input_rows[element_of(*row.entry, draft)] = id;
}

bool LayerDrafts::take_first(ScheduledBatch& batch) {
  // first_drafts_ also counts drafts for requests that no longer need them, because these drafts occupy elements of
  // last_ids too.
  std::int64_t most = first_drafts_;
  for (const Row& row : rows_) most += row.entry->drafts - 1;
  if (first_drafts_ == 0 || most > runner_.options().max_requests) return false;
  for (Row& row : rows_) place(row, row.id, 0, batch);
  made_ = static_cast<std::int32_t>(first_drafts_);
  drop_finished(0);
  return true;
}

void LayerDrafts::drop_finished(std::int64_t draft) {
  std::erase_if(rows_, [&](const Row& row) { return row.entry->drafts <= draft + 1; });
}

Status LayerDrafts::make(std::int64_t draft, ScheduledBatch& batch) {
  clear();
  for (const Row& row : rows_) hidden_rows_.push_back(row.hidden);
  if (draft == 0 && !is_model_) {
    TRY(runner_.drafts().draft({.rows = hidden_rows_, .first_id = made_}));
  } else {
    for (const Row& row : rows_) add_draft_row(row, draft);
    TRY(runner_.drafts().has_graph(batch_));  // captures the graph if needed
    TRY(run_body(made_));
    for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].hidden = static_cast<std::int32_t>(i);
  }
  for (Row& row : rows_) place(row, made_++, draft, batch);
  return ok_status();
}

void LayerDrafts::add_draft_row(const Row& row, std::int64_t draft) {
  const Sequence& sequence = *row.entry->sequence;
  batch_.wanted_rows.push_back(static_cast<std::int32_t>(batch_.num_tokens()));
  const std::int64_t last = std::ssize(sequence.tokens) - 1;
  append_rows(sequence, is_model_ ? last + draft : last - 1 + draft, 1, cache_, batch_, rope_positions_);
  batch_.input_ids.push_back(draft == 0 ? sequence.tokens.back() : TokenId(0));
  batch_.input_rows.push_back(row.id);  // -1 for draft 0, whose row has the sequence's newest token
}

void LayerDrafts::write_ids(ScheduledBatch& batch) const {
  const std::span<const TokenId> drafts = runner_.drafts().fetched();
  for (const ScheduledBatch::Entry& entry : batch.entries)
    for (std::int64_t draft = 0; draft < entry.drafts; ++draft) {
      const std::size_t element = element_of(entry, draft);
      const std::int32_t row = batch.batch.input_rows[element];
      if (row >= 0) batch.batch.input_ids[element] = drafts[static_cast<std::size_t>(row)];
    }
}

}  // namespace tessera
