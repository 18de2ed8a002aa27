#include "tessera/runner/ranks/rank_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

static_assert(sizeof(SlotCopy) == 16, "elements of lists have no padding");

}  // namespace

void BatchPacker::pack(const ForwardBatch& batch, MessageWriter& to) {
  to.list(batch.input_ids);
  to.list(batch.input_rows);
  to.list(batch.positions);
  to.list(batch.query_lens);
  to.list(batch.kv_lens);
  to.list(batch.wanted_rows);
  to.list(batch.embedding_rows);
  to.list(batch.draft_lens);
  to.list(batch.accepted_drafts);
  to.list(batch.adapter_slots);
  to.list(batch.slot_copies);
  to.word(std::ssize(batch.checkpoints));
  for (const StateCheckpoint& checkpoint : batch.checkpoints) {
    to.word(static_cast<std::int64_t>(checkpoint.group));
    to.word(checkpoint.request);
    to.word(checkpoint.rows);
    to.word(checkpoint.slot.value());
  }
  to.word(std::ssize(batch.embedding_writes));
  for (const EmbeddingWrite& write : batch.embedding_writes) {
    to.word(write.first_row);
    to.list(write.values);
  }
  groups_.resize(batch.groups.size());
  to.word(std::ssize(batch.groups));
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    to.list(batch.groups[g].slots);
    pack_tables(batch.groups[g].page_tables, groups_[g], to);
  }
}

// Packs each table as its difference from the previous forward's table with the same number. When a request ends, its
// table is missing from the next forward, but the other tables keep their order. The search for a table therefore
// starts after the last match.
void BatchPacker::pack_tables(std::span<const PageTable> tables, Group& group, MessageWriter& to) {
  to.word(std::ssize(tables));
  group.next.clear();
  std::size_t from = 0;
  for (const PageTable& table : tables) {
    std::int64_t last_row = -1;
    std::size_t kept = 0;
    for (std::size_t i = 0; table.number != PageTableNumber{} && i < group.last.size(); ++i) {
      const std::size_t row = (from + i) % group.last.size();
      if (group.last[row].number != table.number) continue;
      last_row = static_cast<std::int64_t>(row);
      kept = std::min(group.last[row].length, table.pages.size());
      group.last[row] = {};
      from = row + 1;
      break;
    }
    to.number(table.number.value());
    to.word(table.first_held);
    to.word(last_row);
    to.word(static_cast<std::int64_t>(kept));
    to.list(table.pages.subspan(kept));
    group.next.push_back({.number = table.number, .length = table.pages.size()});
  }
  std::swap(group.last, group.next);
}

Status ReceivedBatch::unpack_checkpoints(MessageReader& from) {
  batch_.checkpoints.clear();
  const std::int64_t count = TRY(from.choice("checkpoints", INT32_MAX));
  const auto number = [&] { return from.choice("checkpoints", INT32_MAX); };
  for (std::int64_t i = 0; i < count; ++i) {
    const auto group = static_cast<std::size_t>(TRY(number()));
    const auto request = static_cast<std::int32_t>(TRY(number()));
    const auto rows = static_cast<std::int32_t>(TRY(number()));
    const PageId slot(static_cast<std::int32_t>(TRY(number())));
    batch_.checkpoints.push_back({.group = group, .request = request, .rows = rows, .slot = slot});
  }
  return ok_status();
}

Status ReceivedBatch::unpack(MessageReader& from) {
  TRY(from.list("input_ids", batch_.input_ids));
  TRY(from.list("input_rows", batch_.input_rows));
  TRY(from.list("positions", batch_.positions));
  TRY(from.list("query_lens", batch_.query_lens));
  TRY(from.list("kv_lens", batch_.kv_lens));
  TRY(from.list("wanted_rows", batch_.wanted_rows));
  TRY(from.list("embedding_rows", batch_.embedding_rows));
  TRY(from.list("draft_lens", batch_.draft_lens));
  TRY(from.list("accepted_drafts", batch_.accepted_drafts));
  TRY(from.list("adapter_slots", batch_.adapter_slots));
  TRY(from.list("slot_copies", batch_.slot_copies));
  TRY(unpack_checkpoints(from));
  const std::int64_t writes = TRY(from.choice("embedding_writes", INT32_MAX));
  batch_.embedding_writes.clear();
  for (std::int64_t i = 0; i < writes; ++i) {
    const std::int64_t first_row = TRY(from.word("embedding_writes"));
    const std::span<const float> values = TRY(from.list<float>("embedding_writes"));
    batch_.embedding_writes.push_back({.first_row = first_row, .values = values});
  }
  const auto groups = static_cast<std::size_t>(TRY(from.choice("groups", ir::kMaxCacheGroups)));
  groups_.resize(groups);
  batch_.groups.resize(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    TRY(from.list("slots", batch_.groups[g].slots));
    TRY(unpack_tables(from, groups_[g], batch_.groups[g].page_tables));
  }
  return ok_status();
}

// Unpacks the page tables. `group.next` never shrinks, so later forwards can reuse the memory of its unused rows.
Status ReceivedBatch::unpack_tables(MessageReader& from, Group& group, std::vector<PageTable>& tables) {
  const std::int64_t count = TRY(from.choice("page_tables", std::ssize(batch_.query_lens)));
  const auto rows = static_cast<std::size_t>(count);
  if (group.next.size() < rows) group.next.resize(rows);
  tables.clear();
  for (std::size_t i = 0; i < rows; ++i) {
    Row& row = group.next[i];
    if (Status read = unpack_table(from, group, row); !read.ok())
      return std::move(read).with_context(fmt::format("page table {}", i));
    tables.push_back({.pages = row.pages, .first_held = row.first_held, .number = row.number});
  }
  std::swap(group.last, group.next);
  group.rows = rows;
  return ok_status();
}

Status ReceivedBatch::unpack_table(MessageReader& from, Group& group, Row& row) {
  row.number = PageTableNumber(TRY(from.number("number")));
  const std::int64_t first_held = TRY(from.choice("first_held", INT32_MAX));
  const std::int64_t last_row = TRY(from.word("last_row"));
  const auto kept = static_cast<std::size_t>(TRY(from.choice("kept", INT32_MAX)));
  const std::span<const PageId> added = TRY(from.list<PageId>("pages"));
  row.first_held = 0;
  row.pages.clear();
  if (last_row != -1) {
    const bool known = last_row >= 0 && last_row < static_cast<std::int64_t>(group.rows) &&
                       group.last[static_cast<std::size_t>(last_row)].number == row.number &&
                       row.number != PageTableNumber{};
    if (!known)
      return data_loss(fmt::format("table {} is said to be row {} of the last forward", row.number.value(), last_row));
    Row& last = group.last[static_cast<std::size_t>(last_row)];
    last.number = {};
    std::swap(row.pages, last.pages);
    row.first_held = last.first_held;
  }
  if (kept > row.pages.size())
    return data_loss(
        fmt::format("{} entries of table {} are kept, and {} are known", kept, row.number.value(), row.pages.size()));
  // The minimum capacity of a list of pages. A sequence gains one page at a time, so spare capacity avoids most
  // reallocations.
  constexpr std::size_t kFewPages = 64;
  if (kept + added.size() > row.pages.capacity()) row.pages.reserve(std::max(kFewPages, 2 * (kept + added.size())));
  row.pages.resize(kept);
  row.pages.insert(row.pages.end(), added.begin(), added.end());
  const auto end = static_cast<std::size_t>(std::min<std::int64_t>(first_held, static_cast<std::int64_t>(kept)));
  for (auto at = static_cast<std::size_t>(std::max<std::int64_t>(row.first_held, 0)); at < end; ++at)
    row.pages[at] = PageId(0);
  row.first_held = first_held;
  return ok_status();
}

}  // namespace tessera
