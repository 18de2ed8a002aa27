// Describes all inputs that a step stages for a model's graphs: name, type, number of rows, and contents. Allocation,
// packing, padding and upload follow from this one table (input_buffers.h).
//
// A graph's input is staged from the table's entry of the same name. Inputs without an entry are already in device
// memory. The device writes last_ids, hidden and choice_logits. Forwards and drafts write draft_hidden
// (drafts/draft_hidden.h). Embeddings are written when a forward first needs them (embedding_rows.h). Logit edits have
// buffers of their own (edit_buffers.h).
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

// The sampling parameters of one wanted row (ops/sampling/sample.h).
struct SampleRow {
  float temperature = 0;   // if 0, greedy: the most probable token is taken
  std::int32_t top_k = 0;  // if 0, there is no limit
  float top_p = 1;
  float min_p = 0;  // if 0, there is no limit
  std::int64_t seed = 0;
  std::int32_t choice = 0;    // index among the request's n choices
  std::int32_t position = 0;  // position of the new token in its request
};

// The temporal, vertical and horizontal positions of the T tokens, for models with three-dimensional rotary positions.
// Each list has T elements of at least 0. If the positions on all three axes equal the batch's positions, all three
// lists are empty. Cache slots and the causal mask depend on the batch's positions alone.
using RopeAxes = std::array<std::vector<std::int32_t>, 3>;
inline constexpr RopeAxes kPlainRope{};

// The token inputs to stage. The spans and references must stay valid until the call that takes them returns.
struct StagedTokens {
  const ForwardBatch& batch;
  const RopeAxes& rope_positions = kPlainRope;
  TokenId padding_id{0};  // id for padding rows, which follow the batch's tokens
  // Token t continues the hidden state in row draft_rows[t] of draft_hidden. The list is empty for forwards of the
  // model itself.
  std::span<const std::int32_t> draft_rows = {};
};
struct StagedRows {
  std::span<const std::int32_t> rows;   // indices of the body's output rows that the head computes
  std::span<const SampleRow> sampling;  // parameters of the first rows; the other rows are greedy
  // The adapter slot of each output row of the body, or -1 if the row has no adapter. Rows past the end of this list
  // have no adapter.
  std::span<const std::int32_t> adapter_slots = {};
};

// One token input. `write` stores the input's rows 0 … padded - 1 to `to`. The rows after the batch's tokens are
// padding.
struct TokenInput {
  std::string name;
  ir::DType dtype;
  std::size_t group;   // the cache group that an input of slots belongs to
  std::int64_t lists;  // number of stored lists, each with T values
  void (*write)(const StagedTokens& step, std::size_t group, std::size_t padded, std::byte* to);
};
struct RowInput {
  std::string name;
  ir::DType dtype;
  std::int64_t lists;
  void (*write)(const StagedRows& step, std::size_t padded, std::byte* to);
};

// The inputs of a step of T tokens and R wanted rows.
struct InputTable {
  std::vector<TokenInput> tokens;  // each input has the shape [TokenInput::lists, T]
  std::vector<RowInput> rows;      // each input has the shape [RowInput::lists, R]
};
// The inputs that only some models need. The table includes an input if its member is true.
struct ExtraInputs {
  bool rope_positions = false;  // RopeAxes, for models with three-dimensional rotary positions
  bool draft_rows = false;      // StagedTokens::draft_rows, for a next-token layer
  bool adapters = false;        // inputs that give the adapter of each token and of each wanted row
};
InputTable make_input_table(std::span<const std::string> cache_groups, const ExtraInputs& extra = {});

}  // namespace tessera
