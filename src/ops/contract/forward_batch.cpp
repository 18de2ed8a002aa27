#include "tessera/ops/contract/forward_batch.h"

#include <fmt/format.h>

#include <utility>

namespace tessera {
namespace {

Status check_count(std::string_view what, std::size_t actual, std::int64_t expected, std::string_view of) {
  if (static_cast<std::int64_t>(actual) == expected) return ok_status();
  return internal_error(fmt::format("{} has {} entries, but the batch has {} {}", what, actual, expected, of));
}

Status check_tokens(const ForwardBatch& batch) {
  const std::int64_t num_tokens = batch.num_tokens();
  TRY(check_count("input_rows", batch.input_rows.size(), num_tokens, "tokens"));
  TRY(check_count("positions", batch.positions.size(), num_tokens, "tokens"));
  const std::vector<std::int32_t>& embeddings = batch.embedding_rows;
  if (!embeddings.empty()) TRY(check_count("embedding_rows", embeddings.size(), num_tokens, "tokens"));
  for (std::size_t t = 0; t < batch.input_ids.size(); ++t) {
    const std::int32_t row = batch.input_rows[t];
    if (row < -1)
      return internal_error(fmt::format("input_rows[{}] is {}; a row of the last step, or -1, is accepted", t, row));
    const std::int32_t embedding = embeddings.empty() ? -1 : embeddings[t];
    if (embedding < -1 || (embedding >= 0 && row >= 0))
      return internal_error(fmt::format(
          "embedding_rows[{}] is {} beside row {} of the last step; a row, or -1, is accepted", t, embedding, row));
    const std::int32_t id = batch.input_ids[t].value();
    if (row == -1 && embedding == -1 && id < 0)
      return internal_error(fmt::format(
          "input_ids[{}] is {}, and neither a row of the last step nor an embedding is given instead", t, id));
  }
  for (std::size_t r = 0; r < batch.wanted_rows.size(); ++r) {
    const std::int32_t row = batch.wanted_rows[r];
    if (row < 0 || row >= num_tokens)
      return internal_error(fmt::format("wanted_rows[{}] is {}, outside the {} tokens", r, row, num_tokens));
  }
  return ok_status();
}

Status check_requests(const ForwardBatch& batch) {
  TRY(check_count("kv_lens", batch.kv_lens.size(), batch.num_requests(), "requests"));
  if (!batch.adapter_slots.empty())
    TRY(check_count("adapter_slots", batch.adapter_slots.size(), batch.num_tokens(), "tokens"));
  if (!batch.draft_lens.empty())
    TRY(check_count("draft_lens", batch.draft_lens.size(), batch.num_requests(), "requests"));
  for (std::size_t b = 0; b < batch.draft_lens.size(); ++b)
    if (batch.draft_lens[b] < 0 || batch.draft_lens[b] >= batch.query_lens[b])
      return internal_error(
          fmt::format("draft_lens[{}] is {}; 0 to {}, one less than the request's tokens, is accepted", b,
                      batch.draft_lens[b], batch.query_lens[b] - 1));
  if (!batch.accepted_drafts.empty())
    TRY(check_count("accepted_drafts", batch.accepted_drafts.size(), batch.num_requests(), "requests"));
  for (std::size_t b = 0; b < batch.accepted_drafts.size(); ++b)
    if (batch.accepted_drafts[b] < 0 || batch.accepted_drafts[b] > batch.kv_lens[b] - batch.query_lens[b])
      return internal_error(fmt::format("accepted_drafts[{}] is {}; 0 to {}, the request's earlier tokens, is accepted",
                                        b, batch.accepted_drafts[b], batch.kv_lens[b] - batch.query_lens[b]));
  std::int64_t first = 0;  // first token of the request
  for (std::size_t b = 0; b < batch.query_lens.size(); ++b) {
    const std::int32_t query_len = batch.query_lens[b];
    const std::int32_t kv_len = batch.kv_lens[b];
    if (query_len < 1) return internal_error(fmt::format("query_lens[{}] is {}; at least 1 is needed", b, query_len));
    if (kv_len < query_len)
      return internal_error(
          fmt::format("kv_lens[{}] is {}, less than the request's {} tokens of this forward", b, kv_len, query_len));
    if (first + query_len > batch.num_tokens())
      return internal_error(fmt::format("query_lens up to request {} add up to {}, but the batch has {} tokens", b,
                                        first + query_len, batch.num_tokens()));
    for (std::int64_t t = first; t < first + query_len; ++t) {
      const std::int32_t position = batch.positions[static_cast<std::size_t>(t)];
      if (position < 0 || position >= kv_len)
        return internal_error(
            fmt::format("positions[{}] is {}, outside request {}'s {} tokens", t, position, b, kv_len));
    }
    first += query_len;
  }
  if (first != batch.num_tokens())
    return internal_error(
        fmt::format("query_lens add up to {}, but the batch has {} tokens", first, batch.num_tokens()));
  return ok_status();
}

Status check_group(const ForwardBatch& batch, const CacheGroupBatch& group) {
  TRY(check_count("slots", group.slots.size(), batch.num_tokens(), "tokens"));
  TRY(check_count("page_tables", group.page_tables.size(), batch.num_requests(), "requests"));
  for (std::size_t t = 0; t < group.slots.size(); ++t)
    if (group.slots[t].value() < -1)
      return internal_error(
          fmt::format("slots[{}] is {}; a slot, or -1 for none, is accepted", t, group.slots[t].value()));
  return ok_status();
}

}  // namespace

bool ForwardBatch::is_decode_with_drafts() const {
  for (std::size_t b = 0; b < query_lens.size(); ++b)
    if (query_lens[b] != 1 + (draft_lens.empty() ? 0 : draft_lens[b])) return false;
  return true;
}

void CacheGroupBatch::own(std::vector<std::vector<PageId>> tables) {
  owned = std::make_shared<const std::vector<std::vector<PageId>>>(std::move(tables));
  page_tables.clear();
  for (const std::vector<PageId>& pages : *owned)
    page_tables.push_back({.pages = pages, .number = new_page_table_number()});
}

Status ForwardBatch::check() const {
  TRY(check_tokens(*this).with_context("forward batch"));
  TRY(check_requests(*this).with_context("forward batch"));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (Status status = check_group(*this, groups[g]); !status.ok()) [[unlikely]]
      return std::move(status).with_context(fmt::format("forward batch: cache group {}", g));
  }
  return ok_status();
}

}  // namespace tessera
