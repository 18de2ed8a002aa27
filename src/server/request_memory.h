// What requests take of the memory budget, estimated from above before the memory is taken.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/server/api_job.h"

namespace tessera {

// While a body of JSON is read: its text, the tree of its values, and what templates make of these. Cost: one pass over
// the text.
std::int64_t reading_bytes(std::string_view json);

// While a text of so many bytes is tokenised.
std::int64_t encoding_bytes(std::size_t text_bytes);

// Until the answer's end: what the requests hold, and the most that their results come to. Images have charges of their
// own. `vocab_size`, `hidden_size`: the model's.
std::int64_t held_bytes(const ApiJob& job, std::int64_t vocab_size, std::int64_t hidden_size);

// What kept grammars may take beside a budget of `budget_bytes`.
std::size_t kept_grammar_bytes(std::int64_t budget_bytes);

// Bytes of an answer that is made already.
inline std::int64_t held_bytes(const std::string& answer, std::int64_t, std::int64_t) {
  return static_cast<std::int64_t>(answer.capacity());
}

}  // namespace tessera
