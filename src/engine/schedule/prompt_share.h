// How much of the prompts a step takes beside its decodes.
//
// From some number of tokens on a forward takes a time in proportion to them: two prompts together then take as long as
// one after the other, and only the first one's answer comes later. And every request that decodes waits for the whole
// step. So the first prompt is taken however long it is, or where others decode as far as a third of the chunk goes,
// and those behind it until the step has `filling` tokens. Where more than kDeepBacklog chunks of prompts wait,
// throughput decides instead: whole chunks, which have the fewest forwards.
//
// Llama-3.1-8B on an H200, 300 requests of the Azure conversation trace at 12/s: docs/benchmarks.md, "A saturated
// server".
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera {

class PromptShare {
 public:
  static constexpr std::int64_t kDeepBacklog = 2;  // chunks
  static constexpr std::int64_t kChunkShare = 3;   // a step with decodes takes chunk / kChunkShare of prompts

  // `filling`: tokens from which a forward's time is in proportion to them; 0: unknown, then steps are whole chunks.
  // `backlog`: tokens of prompts that are to be computed, of running and waiting requests together.
  PromptShare(std::int64_t chunk, std::int64_t filling, std::int64_t backlog, bool decodes)
      : filling_(filling), left_(chunk), shares_(filling > 0 && backlog <= kDeepBacklog * chunk) {
    if (shares_ && decodes) left_ = std::min(chunk, std::max(chunk / kChunkShare, filling));
  }

  // How many of the next prompt's `uncomputed` tokens the step may take.
  std::int64_t most(std::int64_t uncomputed) const {
    const std::int64_t room = shares_ && taken_ > 0 ? std::max<std::int64_t>(filling_ - taken_, 0) : left_;
    return std::min({uncomputed, left_, room});
  }
  // How many it took: fewer where there are no pages or rows for them, and those behind take their place.
  void take(std::int64_t count) {
    taken_ += count;
    left_ -= count;
  }

 private:
  std::int64_t filling_;
  std::int64_t left_;
  bool shares_;
  std::int64_t taken_ = 0;
};

}  // namespace tessera
