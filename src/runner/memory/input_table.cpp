#include "tessera/runner/memory/input_table.h"

#include <algorithm>
#include <cstring>

#include "tessera/model/model.h"
#include "tessera/ops/adapters/adapter_rows.h"

namespace tessera {
namespace {

// Writes the batch's values, and then `padding` until there are `padded` elements.
template <class List, class T>
void write_list(const List& values, T padding, std::size_t padded, std::byte* to) {
  if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
  for (std::size_t i = values.size(); i < padded; ++i) std::memcpy(to + i * sizeof(T), &padding, sizeof(T));
}

template <auto kMember>
void write_sampling(const StagedRows& step, std::size_t padded, std::byte* to) {
  using T = std::decay_t<decltype(std::declval<SampleRow>().*kMember)>;
  const SampleRow greedy;
  for (std::size_t i = 0; i < padded; ++i) {
    const T value = (i < step.sampling.size() ? step.sampling[i] : greedy).*kMember;
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

// Writes the positions on the three axes, one axis after another. Padding has position 0 on each axis.
void write_rope_positions(const StagedTokens& step, std::size_t, std::size_t padded, std::byte* to) {
  for (const std::vector<std::int32_t>& own : step.rope_positions) {
    write_list(own.empty() ? step.batch.positions : own, std::int32_t{0}, padded, to);
    to += padded * sizeof(std::int32_t);
  }
}

// Writes the row indices. A padding row has index -1, for which the graph reads zeros.
void write_rows(const StagedRows& step, std::size_t padded, std::byte* to) {
  const auto rows = std::as_bytes(step.rows);
  std::copy(rows.begin(), rows.end(), to);
  std::fill(to + rows.size(), to + padded * sizeof(std::int32_t), std::byte{0xff});
}

void write_row_marks(const StagedRows& step, std::size_t padded, std::byte* to) {
  for (std::size_t i = 0; i < padded; ++i) {
    const std::int32_t mark = i < step.rows.size() ? 1 : 0;
    std::memcpy(to + i * sizeof(mark), &mark, sizeof(mark));
  }
}

// Writes the table that gives the adapter of each token.
void write_adapters(const StagedTokens& step, std::size_t, std::size_t padded, std::byte* to) {
  write_adapter_rows(step.batch.adapter_slots, padded, to);
}

// Writes the table that gives the adapter of each wanted row. A row index that is not below the number of tokens gets
// no adapter.
void write_head_adapters(const StagedRows& step, std::size_t padded, std::byte* to) {
  std::vector<std::int32_t> slots;
  for (const std::int32_t row : step.rows) {
    const bool known = row >= 0 && row < std::ssize(step.adapter_slots);
    slots.push_back(known ? step.adapter_slots[static_cast<std::size_t>(row)] : -1);
  }
  write_adapter_rows(slots, padded, to);
}

}  // namespace

InputTable make_input_table(std::span<const std::string> cache_groups, const ExtraInputs& extra) {
  using ir::DType;
  InputTable table;
  const auto token_input = [&](std::string_view name, std::size_t group, auto* write) {
    table.tokens.push_back({std::string(name), DType::kInt32, group, 1, write});
  };
  token_input(
      input_names::kInputIds, 0, +[](const StagedTokens& s, std::size_t, std::size_t padded, std::byte* to) {
        write_list(s.batch.input_ids, s.padding_id, padded, to);
      });
  token_input(
      input_names::kInputRows, 0, +[](const StagedTokens& s, std::size_t, std::size_t padded, std::byte* to) {
        write_list(s.batch.input_rows, std::int32_t{-1}, padded, to);
      });
  token_input(
      input_names::kEmbeddingRows, 0, +[](const StagedTokens& s, std::size_t, std::size_t padded, std::byte* to) {
        write_list(s.batch.embedding_rows, std::int32_t{-1}, padded, to);
      });
  token_input(
      input_names::kPositions, 0, +[](const StagedTokens& s, std::size_t, std::size_t padded, std::byte* to) {
        write_list(s.batch.positions, std::int32_t{0}, padded, to);
      });
  if (extra.rope_positions)
    table.tokens.push_back({std::string(input_names::kRopePositions), DType::kInt32, 0, 3, write_rope_positions});
  if (extra.adapters)
    table.tokens.push_back(
        {std::string(input_names::kAdapterRows), DType::kInt32, 0, kAdapterRowLists, write_adapters});
  if (extra.draft_rows)
    token_input(
        input_names::kDraftRows, 0, +[](const StagedTokens& s, std::size_t, std::size_t padded, std::byte* to) {
          write_list(s.draft_rows, std::int32_t{-1}, padded, to);
        });
  for (std::size_t g = 0; g < cache_groups.size(); ++g) {
    token_input(
        std::string(input_names::kSlots) + cache_groups[g], g,
        +[](const StagedTokens& s, std::size_t group, std::size_t padded, std::byte* to) {
          write_list(s.batch.groups[group].slots, SlotId(0), padded, to);  // slot 0 belongs to no request
        });
  }
  table.rows = {
      {std::string(input_names::kWantedRows), DType::kInt32, 1, write_rows},
      {std::string(input_names::kRowMarks), DType::kInt32, 1, write_row_marks},
      {std::string(input_names::kTemperature), DType::kFloat32, 1, write_sampling<&SampleRow::temperature>},
      {std::string(input_names::kTopK), DType::kInt32, 1, write_sampling<&SampleRow::top_k>},
      {std::string(input_names::kTopP), DType::kFloat32, 1, write_sampling<&SampleRow::top_p>},
      {std::string(input_names::kMinP), DType::kFloat32, 1, write_sampling<&SampleRow::min_p>},
      {std::string(input_names::kSeed), DType::kInt64, 1, write_sampling<&SampleRow::seed>},
      {std::string(input_names::kChoice), DType::kInt32, 1, write_sampling<&SampleRow::choice>},
      {std::string(input_names::kSamplePosition), DType::kInt32, 1, write_sampling<&SampleRow::position>},
  };
  if (extra.adapters)
    table.rows.push_back(
        {std::string(input_names::kAdapterHeadRows), DType::kInt32, kAdapterRowLists, write_head_adapters});
  return table;
}

}  // namespace tessera
