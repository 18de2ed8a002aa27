// Estimates the largest number of bytes that a request will use. The bytes can then be charged to the memory budget
// before they are allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/server/api_job.h"

namespace tessera {

// Returns the bytes needed to read a JSON body: its text, the tree of its values, and the values that templates make of
// them. Cost: one pass over the text.
std::int64_t reading_bytes(std::string_view json);

// Returns the bytes needed while a text of `text_bytes` bytes is tokenised.
std::int64_t encoding_bytes(std::size_t text_bytes);

// Returns the bytes held until the answer's end: the requests, and an upper bound for their results. Images have their
// own charges. `num_logits` is the number of logits in a row (ServedModel::num_logits()). `hidden_size` is the model's.
std::int64_t held_bytes(const ApiJob& job, std::int64_t num_logits, std::int64_t hidden_size);

// Returns the bytes that cached grammars may take in addition to a budget of `budget_bytes`.
std::size_t kept_grammar_bytes(std::int64_t budget_bytes);

// Returns the bytes of an answer that is already made.
inline std::int64_t held_bytes(const std::string& answer, std::int64_t, std::int64_t) {
  return static_cast<std::int64_t>(answer.capacity());
}

}  // namespace tessera
