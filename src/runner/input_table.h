// The inputs that a step stages for a model's graphs, described once: name, type, whose rows they have, and what stands
// in each row. Buffers, packing, padding and upload follow from the table (input_buffers.h).
//
// An input of a graph names its source: the table's entry of that name. Other inputs are in device memory already:
// last_ids, hidden and choice_logits are made there, embeddings are written when the first forward needs them
// (embedding_rows.h), and logit edits have buffers of their own (edit_buffers.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/ir/type.h"
#include "tessera/ops/forward_batch.h"

namespace tessera {

// How one wanted row becomes a token; ops/sample.h has the meaning.
struct SampleRow {
  float temperature = 0;   // 0: the most probable token
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;  // 0: all
  std::int64_t seed = 0;
  std::int32_t choice = 0;    // of the request's n choices
  std::int32_t position = 0;  // of the new token in its request
};

// What is staged. Spans and references are valid during the call.
struct StagedTokens {
  const ForwardBatch& batch;
  TokenId padding_id;  // of rows past the batch's tokens
};
struct StagedRows {
  std::span<const std::int32_t> rows;   // of the body's output
  std::span<const SampleRow> sampling;  // of the first rows; the others are greedy
};

// Writes rows 0 … padded - 1 of the input to `to`; rows past the real ones become padding.
struct TokenInput {
  std::string name;
  ir::DType dtype;
  std::size_t group;  // cache group, for slots
  void (*write)(const StagedTokens& step, std::size_t group, std::size_t padded, std::byte* to);
};
struct RowInput {
  std::string name;
  ir::DType dtype;
  void (*write)(const StagedRows& step, std::size_t padded, std::byte* to);
};

struct InputTable {
  std::vector<TokenInput> tokens;  // [T] each
  std::vector<RowInput> rows;      // [R] each
};
InputTable make_input_table(std::span<const std::string> cache_groups);

}  // namespace tessera
