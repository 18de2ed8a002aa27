#include "tessera/engine/outputs/prompt_output.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tessera/engine/outputs/token_logprobs.h"

namespace tessera {
namespace {

std::span<const float> rows_of(std::span<const float> values, std::int64_t first, std::int64_t count,
                               std::int64_t size) {
  return values.subspan(static_cast<std::size_t>(first * size), static_cast<std::size_t>(count * size));
}

// Adds the hidden states `rows` to the pooled vector. The first row belongs to token `first`. For a mean, adds the rows
// one after another, so the sum's rounding does not depend on how a prompt is cut into chunks.
void pool(Sequence& sequence, std::int64_t first, std::span<const float> rows, std::int64_t hidden_size) {
  const Pooling pooling = sequence.request.pooling;
  const auto size = static_cast<std::size_t>(hidden_size);
  const std::int64_t end = first + static_cast<std::int64_t>(rows.size() / size);
  const bool is_whole = end == sequence.prompt_tokens();
  std::vector<float>& pooled = sequence.result.pooled;
  if (pooling == Pooling::kFirst && first == 0) pooled.assign(rows.begin(), rows.begin() + hidden_size);
  if (pooling == Pooling::kLast && is_whole) pooled.assign(rows.end() - hidden_size, rows.end());
  if (pooling != Pooling::kMean) return;
  std::vector<double>& sum = sequence.pooled_sum;
  sum.resize(size);
  for (std::size_t i = 0; i < rows.size(); ++i) sum[i % size] += static_cast<double>(rows[i]);
  if (!is_whole) return;
  pooled.reserve(size);
  for (const double value : sum) pooled.push_back(static_cast<float>(value / static_cast<double>(end)));
}

}  // namespace

void add_prompt_rows(const ScheduledBatch::Entry& entry, const StepOutputs& outputs, int top_logprobs,
                     std::span<const float> logits, std::int64_t row_size) {
  Sequence& sequence = *entry.sequence;
  const std::int64_t known = std::max<std::int64_t>(sequence.rows_delivered - entry.first_prompt_row, 0);
  sequence.rows_delivered = std::max(sequence.rows_delivered, entry.first_prompt_row + entry.prompt_rows);
  if (sequence.request.score) {
    const std::span<const float> rows = rows_of(logits, entry.wanted_from, entry.prompt_rows, row_size);
    sequence.result.logits.insert(sequence.result.logits.end(), rows.begin(), rows.end());
    return;
  }
  if (!sequence.request.logprobs.prompt) return;
  std::vector<TokenLogprobs>& logprobs = sequence.result.prompt_logprobs;
  if (sequence.request.logprobs.prompt_start == 0 && logprobs.empty())
    logprobs.push_back({.token = {.id = sequence.tokens[0], .logprob = std::numeric_limits<float>::quiet_NaN()}});
  for (std::int64_t i = known; i < entry.prompt_rows; ++i) {
    const TokenId token = sequence.tokens[static_cast<std::size_t>(entry.first_prompt_row + i + 1)];
    logprobs.push_back(
        logprobs_of(token, entry.wanted_from + i, top_logprobs, *sequence.request.logprobs.prompt, outputs));
  }
}

void add_hidden(const ScheduledBatch::Entry& entry, std::span<const float> hidden, std::int64_t size) {
  Sequence& sequence = *entry.sequence;
  const std::int64_t end = entry.first_hidden + entry.hidden_count;
  const std::int64_t first = std::max(entry.first_hidden, sequence.hidden_delivered);
  if (first >= end) return;
  const std::span<const float> rows =
      rows_of(hidden, entry.hidden_from + first - entry.first_hidden, end - first, size);
  if (sequence.request.return_hidden_states) {
    std::vector<float>& kept = sequence.result.hidden_states;
    if (sequence.request.last_hidden_state_only) {
      kept.assign(rows.end() - size, rows.end());
    } else {
      // Reserves the whole size at once, because a vector that grows by doubling needs twice the memory meanwhile.
      if (kept.empty()) kept.reserve(static_cast<std::size_t>(sequence.prompt_tokens() * size));
      kept.insert(kept.end(), rows.begin(), rows.end());
    }
  }
  pool(sequence, first, rows, size);
  sequence.hidden_delivered = end;
}

}  // namespace tessera
