// Decides how many prompt tokens a step takes in addition to its decodes. A step takes at most one chunk of prompt
// tokens.
//
// Above some number of tokens (`filling`), a forward's time is proportional to its tokens. Two prompts of that length
// take as long in one step as in two steps, but in one step the first prompt's answer comes later. Every decoding
// request also waits for the end of the step. So a step takes the whole first prompt or, if other requests decode, at
// most a third of the chunk (or `filling` tokens if that is more). It then adds later prompts until it has `filling`
// tokens. If more than kDeepBacklog chunks of prompts wait, throughput matters more. Steps are then whole chunks,
// because these need the fewest forwards.
//
// Measured with Llama-3.1-8B on an H200, on 300 requests of the Azure conversation trace at 12/s:
// docs/measurements/serving.md, "A saturated server".
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera {

class PromptShare {
 public:
  static constexpr std::int64_t kDeepBacklog = 2;  // number of chunks
  // A step with decodes takes up to chunk / kChunkShare tokens of prompts.
  static constexpr std::int64_t kChunkShare = 3;

  // `filling`: the number of tokens above which a forward's time is proportional to its tokens. If it is 0 (unknown),
  // steps are whole chunks. `backlog`: prompt tokens still to be computed, of running and waiting requests together.
  PromptShare(std::int64_t chunk, std::int64_t filling, std::int64_t backlog, bool decodes)
      : filling_(filling), left_(chunk), shares_(filling > 0 && backlog <= kDeepBacklog * chunk) {
    if (shares_ && decodes) left_ = std::min(chunk, std::max(chunk / kChunkShare, filling));
  }

  // Returns how many of the next prompt's `uncomputed` tokens the step may take.
  std::int64_t most(std::int64_t uncomputed) const {
    const std::int64_t room = shares_ && taken_ > 0 ? std::max<std::int64_t>(filling_ - taken_, 0) : left_;
    return std::min({uncomputed, left_, room});
  }
  // Records how many tokens the step took of the prompt for which most() was called. The step takes fewer than most()
  // if pages or rows are missing. Later prompts may use the rest.
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
