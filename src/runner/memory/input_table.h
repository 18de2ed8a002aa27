// Describes once the inputs that a step stages for a model's graphs: name, type, number of rows, and contents of each
// row. Buffers, packing, padding and upload follow from this table (input_buffers.h).
//
// A graph's input names its source, which is the table's entry of that name. Other inputs are in device memory already:
// the device writes last_ids, hidden and choice_logits; embeddings are written when a forward first needs them
// (embedding_rows.h), and draft_hidden by forwards and drafts (drafts/draft_hidden.h); logit edits have buffers of
// their own (edit_buffers.h).
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

// The sampling parameters of one wanted row; see ops/sampling/sample.h.
struct SampleRow {
  float temperature = 0;   // 0: greedy, the most probable token
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;  // 0: all
  std::int64_t seed = 0;
  std::int32_t choice = 0;    // index among the request's n choices
  std::int32_t position = 0;  // position of the new token in its request
};

// Time, height and width of each token ([T] each, at least 0): the positions of models with three-dimensional rotary
// positions. All three are empty if they equal the batch's positions. Cache slots and the causal mask depend on the
// batch's positions alone.
using RopeAxes = std::array<std::vector<std::int32_t>, 3>;
inline constexpr RopeAxes kPlainRope{};

// The token inputs to stage. Spans and references are valid during the call.
struct StagedTokens {
  const ForwardBatch& batch;
  const RopeAxes& rope_positions = kPlainRope;
  TokenId padding_id{0};  // for rows past the batch's tokens
  // [T]: for each token the row of draft_hidden that it continues; empty for forwards of the model itself.
  std::span<const std::int32_t> draft_rows = {};
};
struct StagedRows {
  std::span<const std::int32_t> rows;                // indices of the body's output rows that the head computes
  std::span<const SampleRow> sampling;               // one for each of the first rows; the others are greedy
  std::span<const std::int32_t> adapter_slots = {};  // one for each output row of the body; -1 past its end
};

// One token input. `write` stores rows 0 … padded - 1 of the input to `to`; rows past the real ones become padding.
struct TokenInput {
  std::string name;
  ir::DType dtype;
  std::size_t group;   // cache group, for slot inputs
  std::int64_t lists;  // number of lists of T values each, stored one after another
  void (*write)(const StagedTokens& step, std::size_t group, std::size_t padded, std::byte* to);
};
struct RowInput {
  std::string name;
  ir::DType dtype;
  std::int64_t lists;
  void (*write)(const StagedRows& step, std::size_t padded, std::byte* to);
};

struct InputTable {
  std::vector<TokenInput> tokens;  // [lists, T] each
  std::vector<RowInput> rows;      // [lists, R] each
};
// The inputs that only some models have.
struct ExtraInputs {
  bool rope_positions = false;  // RopeAxes, for models with three-dimensional rotary positions
  bool draft_rows = false;      // the input of that name, for a next-token layer
  bool adapters = false;        // which tokens and which rows have which adapter
};
InputTable make_input_table(std::span<const std::string> cache_groups, const ExtraInputs& extra = {});

}  // namespace tessera
