// The arguments of logit_edits for the kernels of the CPU and of CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/ops/contract/op.h"

namespace tessera {

struct LogitEditArgs {
  float* logits;               // [rows, vocab]
  const std::int32_t* first;   // [rows]
  const std::int32_t* count;   // [rows]
  const std::int32_t* ids;     // [edits]
  const float* penalties;      // [edits]
  const float* offsets;        // [edits]
  const std::int32_t* mask;    // [rows]
  const std::uint32_t* masks;  // [num_masks, words]
  std::int64_t rows;
  std::int64_t vocab;
  std::int64_t edits;
  std::int64_t num_masks;
  std::int64_t words;

  static LogitEditArgs of(const BindArgs& args) {
    return {.logits = args.operands[0].as<float>(),
            .first = args.operands[1].as<std::int32_t>(),
            .count = args.operands[2].as<std::int32_t>(),
            .ids = args.operands[3].as<std::int32_t>(),
            .penalties = args.operands[4].as<float>(),
            .offsets = args.operands[5].as<float>(),
            .mask = args.operands[6].as<std::int32_t>(),
            .masks = args.operands[7].as<std::uint32_t>(),
            .rows = args.operands[0].rows(),
            .vocab = args.operands[0].cols(),
            .edits = args.operands[3].dim(0),
            .num_masks = args.operands[7].dim(0),
            .words = args.operands[7].dim(1)};
  }
};

}  // namespace tessera
