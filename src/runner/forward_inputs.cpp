#include "tessera/runner/forward_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/ops/sampling/top_logprobs.h"

namespace tessera {
namespace {

Status check_embeddings(const ForwardBatch& batch, const ForwardLimits& limits) {
  for (const EmbeddingWrite& write : batch.embedding_writes) {
    const auto values = static_cast<std::int64_t>(write.values.size());
    const std::int64_t end = write.first_row + values / limits.embedding_row_values;
    if (values % limits.embedding_row_values != 0) {
      return internal_error(
          fmt::format("{} values of embeddings are no rows of {} each", values, limits.embedding_row_values));
    }
    if (write.first_row < 0 || end > limits.embedding_rows) {
      return internal_error(
          fmt::format("embeddings for rows {} to {} of {}", write.first_row, end - 1, limits.embedding_rows));
    }
  }
  for (std::size_t t = 0; t < batch.embedding_rows.size(); ++t) {
    if (batch.embedding_rows[t] >= limits.embedding_rows) {
      return internal_error(fmt::format("embedding_rows[{}] is {}, outside the {} rows", t, batch.embedding_rows[t],
                                        limits.embedding_rows));
    }
  }
  return ok_status();
}

Status check_rope_positions(const RopeAxes& axes, std::int64_t tokens) {
  if (std::ranges::all_of(axes, [](const auto& positions) { return positions.empty(); })) return ok_status();
  for (const std::vector<std::int32_t>& positions : axes) {
    if (std::ssize(positions) != tokens)
      return internal_error(
          fmt::format("rope_positions has {} entries, but the batch has {} tokens", positions.size(), tokens));
    const auto wrong = std::ranges::find_if(positions, [](std::int32_t position) { return position < 0; });
    if (wrong != positions.end())
      return internal_error(
          fmt::format("rope_positions[{}] is {}; at least 0 is accepted", wrong - positions.begin(), *wrong));
  }
  return ok_status();
}

// Checks the adapter slots. Kernels assume that all rows of a request have the same slot (adapter_rows.h).
Status check_adapter_slots(const ForwardBatch& batch, std::int64_t available) {
  const std::vector<std::int32_t>& slots = batch.adapter_slots;
  for (std::size_t t = 0; t < slots.size(); ++t)
    if (slots[t] < -1 || slots[t] >= available)
      return internal_error(
          fmt::format("adapter_slots[{}] is {}; one of {} slots, or -1, is accepted", t, slots[t], available));
  if (slots.empty()) return ok_status();
  std::size_t first = 0;
  for (const std::int32_t count : batch.query_lens) {
    const std::size_t end = first + static_cast<std::size_t>(count);
    for (std::size_t t = first; t < end; ++t)
      if (slots[t] != slots[first])
        return internal_error(
            fmt::format("adapter_slots[{}] is {} and adapter_slots[{}] is {}; accepted is one slot for "
                        "all tokens of a request",
                        first, slots[first], t, slots[t]));
    first = end;
  }
  return ok_status();
}

Status check_batch(const ForwardBatch& batch, const ForwardLimits& limits) {
  TRY(batch.check());
  if (batch.num_tokens() > limits.max_tokens) {
    return invalid_argument(
        fmt::format("a forward of {} tokens; at most {} are accepted", batch.num_tokens(), limits.max_tokens));
  }
  if (batch.groups.size() != limits.cache_groups) {
    return internal_error(
        fmt::format("a batch with {} cache groups for a model with {}", batch.groups.size(), limits.cache_groups));
  }
  TRY(check_adapter_slots(batch, limits.adapter_slots));
  return check_embeddings(batch, limits);
}

Status check_edits(const LogitEdits& edits, std::size_t rows, std::int64_t vocab_size) {
  const auto count = static_cast<std::int64_t>(edits.ids.size());
  if (edits.penalties.size() != edits.ids.size() || edits.offsets.size() != edits.ids.size()) {
    return internal_error(fmt::format("logit edits of {} ids with {} penalties and {} offsets", edits.ids.size(),
                                      edits.penalties.size(), edits.offsets.size()));
  }
  const std::vector<std::int32_t>& starts = edits.starts;
  const bool lists_agree = starts.empty() ? count == 0
                                          : starts.size() == rows + 1 && starts.front() == 0 &&
                                                starts.back() == count && std::is_sorted(starts.begin(), starts.end());
  if (!lists_agree) {
    return internal_error(
        fmt::format("logit edits: {} starts do not divide {} ids among {} sampled rows", starts.size(), count, rows));
  }
  for (std::size_t r = 0; r < rows && !starts.empty(); ++r) {
    if (starts[r + 1] - starts[r] > vocab_size) {
      return internal_error(fmt::format("logit edits: row {} has {} ids of a vocabulary of {}", r,
                                        starts[r + 1] - starts[r], vocab_size));
    }
  }
  const auto words = static_cast<std::size_t>((vocab_size + 31) / 32);
  if (edits.masks.size() != edits.masked_rows.size() * words) {
    return internal_error(fmt::format("logit edits: {} words of masks for {} rows of {} each", edits.masks.size(),
                                      edits.masked_rows.size(), words));
  }
  for (std::size_t i = 0; i < edits.masked_rows.size(); ++i) {
    const std::int32_t row = edits.masked_rows[i];
    if (row < (i == 0 ? 0 : edits.masked_rows[i - 1] + 1) || row >= static_cast<std::int64_t>(rows)) {
      return internal_error(
          fmt::format("logit edits: masked row {} is number {} of {} sampled rows; they must ascend", row, i, rows));
    }
  }
  return ok_status();
}

Status check_hidden(const ForwardInputs& inputs, const ForwardLimits& limits) {
  if (inputs.hidden_states.empty()) return ok_status();
  const std::int64_t tokens = inputs.batch.num_tokens();
  const std::int64_t rows = inputs.hidden_rows.empty() ? tokens : std::ssize(inputs.hidden_rows);
  if (std::ssize(inputs.hidden_states) != rows * limits.hidden_size) {
    return internal_error(
        fmt::format("the buffer holds {} values of hidden states, but {} tokens × {} values are needed",
                    inputs.hidden_states.size(), rows, limits.hidden_size));
  }
  for (std::size_t i = 0; i < inputs.hidden_rows.size(); ++i) {
    const std::int32_t row = inputs.hidden_rows[i];
    if (row < (i == 0 ? 0 : inputs.hidden_rows[i - 1] + 1) || row >= tokens)
      return internal_error(
          fmt::format("hidden_rows[{}] is {} of {} tokens; they must ascend below that", i, row, tokens));
  }
  return ok_status();
}

Status check_outputs(const ForwardInputs& inputs, const ForwardLimits& limits) {
  const auto rows = static_cast<std::size_t>(inputs.batch.num_wanted_rows());
  if (!inputs.logits.empty() && inputs.logits.size() != rows * static_cast<std::size_t>(limits.vocab_size)) {
    return internal_error(fmt::format("the buffer holds {} logits, but {} rows × {} values are needed",
                                      inputs.logits.size(), rows, limits.vocab_size));
  }
  TRY(check_hidden(inputs, limits));
  if (!inputs.logprob_targets.empty() && inputs.logprob_targets.size() != rows) {
    return internal_error(
        fmt::format("{} targets of log-probabilities for {} wanted rows", inputs.logprob_targets.size(), rows));
  }
  if (static_cast<std::int64_t>(inputs.logprob_targets.size()) > limits.max_tokens) {
    return internal_error(
        fmt::format("log-probabilities of {} rows; at most {} are accepted", rows, limits.max_tokens));
  }
  if (inputs.top_logprobs < 0 || inputs.top_logprobs > kMaxTopLogprobs) {
    return internal_error(
        fmt::format("{} top log-probabilities; 0 to {} are accepted", inputs.top_logprobs, kMaxTopLogprobs));
  }
  return ok_status();
}

}  // namespace

Status check(const ForwardInputs& inputs, const ForwardLimits& limits) {
  TRY(check_batch(inputs.batch, limits));
  TRY(check_rope_positions(inputs.rope_positions, inputs.batch.num_tokens()));
  const auto rows = static_cast<std::size_t>(inputs.batch.num_wanted_rows());
  if (inputs.sampling.size() > rows)
    return internal_error(fmt::format("{} sampling rows for {} wanted rows", inputs.sampling.size(), rows));
  if (static_cast<std::int64_t>(inputs.sampling.size()) > limits.max_requests) {
    return internal_error(
        fmt::format("{} rows to sample; at most {} are accepted", inputs.sampling.size(), limits.max_requests));
  }
  if (inputs.edits != nullptr) TRY(check_edits(*inputs.edits, inputs.sampling.size(), limits.vocab_size));
  return check_outputs(inputs, limits);
}

}  // namespace tessera
