// The inputs that a step stages for a model's graphs, described once: name, type, whose rows they have, and what stands
// in each row. Buffers, packing, padding and upload follow from the table (input_buffers.h).
//
// An input of a graph names its source: the table's entry of that name. Other inputs are in device memory already:
// last_ids, hidden and choice_logits are made there, embeddings are written when the first forward needs them
// (embedding_rows.h), and logit edits have buffers of their own (edit_buffers.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/ir/type.h"
#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

// How one wanted row becomes a token; ops/sampling/sample.h has the meaning.
struct SampleRow {
  float temperature = 0;   // 0: the most probable token
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;  // 0: all
  std::int64_t seed = 0;
  std::int32_t choice = 0;    // of the request's n choices
  std::int32_t position = 0;  // of the new token in its request
};

// Time, height and width of each token, [T] each and at least 0, by which models with positions in three dimensions
// rotate; or all empty where they are the batch's positions. Keys lie, and rows see one another, by the latter alone.
using RopeAxes = std::array<std::vector<std::int32_t>, 3>;
inline constexpr RopeAxes kPlainRope{};

// What is staged. Spans and references are valid during the call.
struct StagedTokens {
  const ForwardBatch& batch;
  const RopeAxes& rope_positions = kPlainRope;
  TokenId padding_id{0};  // of rows past the batch's tokens
};
struct StagedRows {
  std::span<const std::int32_t> rows;   // of what the body hands to the head
  std::span<const SampleRow> sampling;  // of the first rows; the others are greedy
};

// Writes rows 0 … padded - 1 of the input to `to`; rows past the real ones become padding.
struct TokenInput {
  std::string name;
  ir::DType dtype;
  std::size_t group;   // cache group, for slots
  std::int64_t lists;  // of T values each, one behind the other
  void (*write)(const StagedTokens& step, std::size_t group, std::size_t padded, std::byte* to);
};
struct RowInput {
  static constexpr std::int64_t lists = 1;
  std::string name;
  ir::DType dtype;
  void (*write)(const StagedRows& step, std::size_t padded, std::byte* to);
};

struct InputTable {
  std::vector<TokenInput> tokens;  // [lists, T] each
  std::vector<RowInput> rows;      // [R] each
};
// With `rope_positions`, of a model that rotates by them, those too.
InputTable make_input_table(std::span<const std::string> cache_groups, bool rope_positions);

}  // namespace tessera
