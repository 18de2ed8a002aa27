// The gated delta net of one head on the CPU, in its recurrent and its chunked form, in float32.
// gated_delta_net_cpu.cpp converts the rows, and divides heads and requests among threads.
#pragma once

#include <cstdint>

#include "tessera/ops/recurrent/gated_delta_net.h"

namespace tessera {

// The rows of one head in float32. q and k are normalised, and q is also scaled. Row strides are key_dim and value_dim.
struct DeltaRows {
  float* queries;  // [kDeltaChunk, key_dim]
  float* keys;     // [kDeltaChunk, key_dim]
  float* values;   // [kDeltaChunk, value_dim]; run_delta_chunk() overwrites them
  float* gates;    // [kDeltaChunk]: g
  float* betas;    // [kDeltaChunk]
  float* out;      // [kDeltaChunk, value_dim]
};

struct DeltaSizes {
  std::int64_t key_dim;
  std::int64_t value_dim;
};

// Scratch buffers of the chunked form.
struct DeltaScratch {
  float* keys_t;      // [key_dim, kDeltaChunk]
  float* keys_keys;   // [kDeltaChunk, kDeltaChunk]
  float* query_keys;  // [kDeltaChunk, kDeltaChunk]
};

// Processes the row with index `row`: updates `state` [key_dim, value_dim] and writes rows.out.
void recur_delta_row(const DeltaRows& rows, std::int64_t row, const DeltaSizes& sizes, float* state);

// Returns whether the chunked form supports a head of these sizes.
constexpr bool chunks_delta(const DeltaSizes& sizes) { return sizes.value_dim % 16 == 0; }
// Processes the first `count` rows in the chunked form. Preconditions: count <= kDeltaChunk, and chunks_delta(sizes).
void run_delta_chunk(const DeltaRows& rows, std::int64_t count, const DeltaSizes& sizes, const DeltaScratch& scratch,
                     float* state);

}  // namespace tessera
