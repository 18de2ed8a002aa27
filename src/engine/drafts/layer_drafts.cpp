#include "tessera/engine/drafts/layer_drafts.h"

#include <algorithm>
#include <iterator>

#include "tessera/base/log.h"
#include "tessera/engine/schedule/batch_rows.h"

namespace tessera {
namespace {

void log_failure(const Status& status) {
  log_warn("engine", "the next-token layer failed, so a step has no drafts of it: {}", status.to_string());
}

}  // namespace

void LayerDrafts::clear() {
  clear_rows(cache_.num_groups(), batch_, rope_positions_);
  hidden_rows_.clear();
  drafts_.clear();
  wanting_.clear();
}

Status LayerDrafts::run() {
  finish_rows(batch_, rope_positions_);
  batch_.input_rows.assign(batch_.input_ids.size(), -1);
  drafts_.resize(batch_.wanted_rows.size());
  return runner_.draft({.batch = batch_, .rope_positions = rope_positions_, .rows = hidden_rows_}, drafts_);
}

void LayerDrafts::read(const ScheduledBatch& batch) {
  clear();
  for (const ScheduledBatch::Entry& entry : batch.entries) {
    Sequence* const sequence = entry.sequence;
    if (sequence == nullptr) continue;
    if (sequence->drafter) sequence->drafter->set_layer_draft(std::nullopt);
    // The layer reads a row together with the token behind it. The last row of a finished prompt may lack that token.
    const std::int64_t end = std::min(sequence->computed + sequence->replayed, std::ssize(sequence->tokens) - 1);
    const std::int64_t begin = entry.position + entry.replayed;  // the layer has read these as kept drafts
    if (end <= begin) continue;
    append_rows(*sequence, begin, end - begin, cache_, batch_, rope_positions_);
    for (std::int64_t position = begin; position < end; ++position) {
      batch_.input_ids.push_back(sequence->tokens[static_cast<std::size_t>(position + 1)]);
      hidden_rows_.push_back(static_cast<std::int32_t>(entry.first_token + position - entry.position));
    }
    if (!sequence->drafter || !sequence->decodes()) continue;
    batch_.wanted_rows.push_back(static_cast<std::int32_t>(batch_.num_tokens() - 1));
    wanting_.push_back(sequence);
  }
  if (batch_.input_ids.empty()) return;
  if (const Status status = run(); !status.ok()) return log_failure(status);
  for (std::size_t i = 0; i < wanting_.size(); ++i)
    wanting_[i]->drafter->set_layer_draft({{.token = drafts_[i], .row = static_cast<std::int32_t>(i)}});
}

void LayerDrafts::complete(ScheduledBatch& batch) {
  rows_.clear();
  for (ScheduledBatch::Entry& entry : batch.entries)
    if (entry.drafts > 1 && entry.sequence->drafter->proposed_by_layer())
      rows_.push_back({.entry = &entry, .hidden = entry.sequence->drafter->layer_draft()->row});
  for (std::int64_t draft = 1; !rows_.empty(); ++draft) {
    if (const Status status = complete(draft, batch); !status.ok()) return log_failure(status);
    std::erase_if(rows_, [&](const Row& row) { return row.entry->drafts <= draft + 1; });
  }
}

Status LayerDrafts::complete(std::int64_t draft, ScheduledBatch& batch) {
  clear();
  for (const Row& row : rows_) {
    const Sequence& sequence = *row.entry->sequence;
    batch_.wanted_rows.push_back(static_cast<std::int32_t>(batch_.num_tokens()));
    append_rows(sequence, std::ssize(sequence.tokens) - 2 + draft, 1, cache_, batch_, rope_positions_);
    batch_.input_ids.push_back(sequence.drafts[static_cast<std::size_t>(draft - 1)]);
    hidden_rows_.push_back(row.hidden);
  }
  TRY(run());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const ScheduledBatch::Entry& entry = *rows_[i].entry;
    entry.sequence->drafts[static_cast<std::size_t>(draft)] = drafts_[i];
    batch.batch.input_ids[static_cast<std::size_t>(entry.first_token + entry.new_tokens + draft)] = drafts_[i];
    rows_[i].hidden = static_cast<std::int32_t>(i);
  }
  return ok_status();
}

}  // namespace tessera
