// Decides where a forward of a prompt ends, if the model keeps recurrent states.
//
// A prefix can only be reused where a checkpoint of the states exists. A forward leaves a checkpoint where it ends at a
// page's end (CacheManager::add_checkpoint), and after one of its rows (StateCheckpoint). Wanted are checkpoints at the
// last full page of a forward and, before it, where texts part: at branch points and where messages begin. So a prompt
// that fits in a forward and has one such place needs one forward, and with two or three places it needs two.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

struct PromptPlaces {
  std::int64_t page_size = 1;
  std::int64_t computed = 0;  // tokens that are computed already
  std::int64_t tokens = 0;    // tokens of the sequence
  std::int64_t branch = 0;    // where the prompt parts from an earlier one, at a page's end; 0: nowhere
  std::span<const std::int64_t> branch_tokens = {};  // Request::branch_tokens
};

struct PromptCut {
  std::int64_t end = 0;         // the forward computes the tokens before this position
  std::int64_t checkpoint = 0;  // position before `end`: the states after the tokens before it are stored; 0: none
  friend bool operator==(const PromptCut&, const PromptCut&) = default;
};

// Returns where a forward ends that may compute the next `count` tokens of the prompt. It computes at least one token.
// Precondition: 1 <= count <= tokens - computed.
PromptCut cut_prompt(const PromptPlaces& prompt, std::int64_t count);

}  // namespace tessera
