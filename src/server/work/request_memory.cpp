#include "tessera/server/work/request_memory.h"

#include <algorithm>
#include <cstddef>

#include "tessera/engine/grammar/grammar.h"

namespace tessera {
namespace {

// kBytesOfValue is the memory of a JSON value in a list. kBytesOfObject is the additional memory of an object, whose
// members are copied into a template's value. Both were measured on trees of small values
// (tests/server/memory_test.py). They include the second copy that exists while a vector grows.
constexpr std::int64_t kBytesOfValue = 128;
constexpr std::int64_t kBytesOfObject = 1600;
constexpr std::int64_t kCopiesOfText = 4;

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kFloatText = 13;  // bytes of a float in JSON, with the comma
constexpr std::int64_t kIdCopies = 4;    // copies: in the request, its sequence, the answer and the caches' keys
constexpr std::int64_t kTokenText = 24;  // bytes of an output token: its id and text, and the JSON of both
constexpr std::int64_t kLogprobText = 96;
constexpr std::int64_t kRequest = 4096;                // fixed bytes of each request
constexpr std::int64_t kPart = std::int64_t{1} << 20;  // bytes of a part of a large answer while it is written

template <class List>
std::int64_t ids_bytes(const List& list) {
  return std::ssize(list) * static_cast<std::int64_t>(sizeof(*list.data()));
}

// Returns the bytes of one token and its alternatives in the engine's results.
std::int64_t logprobs_bytes(std::int64_t top) {
  return static_cast<std::int64_t>(sizeof(TokenLogprobs)) + 16 + top * static_cast<std::int64_t>(sizeof(TokenLogprob));
}

std::int64_t parameter_bytes(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  std::int64_t bytes =
      ids_bytes(sampling.allowed_tokens) + ids_bytes(sampling.logit_bias) + ids_bytes(request.stop.ids);
  for (const std::vector<TokenId>& word : sampling.bad_words) bytes += ids_bytes(word);
  for (const std::string& text : request.stop.texts) bytes += std::ssize(text);
  return 2 * bytes;  // one copy in the request, one in the engine's search for these texts
}

// Returns the bytes of a request's result.
std::int64_t result_bytes(const Request& request, std::int64_t num_logits, std::int64_t hidden_size) {
  const std::int64_t prompt = std::ssize(request.prompt);
  const std::int64_t output = request.generates() ? request.stop.max_new_tokens : 0;
  std::int64_t bytes = output * kTokenText;
  if (request.return_hidden_states) {
    const std::int64_t rows = request.last_hidden_state_only ? 1 : prompt + output;
    // The vector grows with the output's rows, so two copies exist while it is reallocated.
    bytes += rows * hidden_size * (output > 1 ? 2 * kFloat : kFloat);
  }
  if (request.pooling != Pooling::kNone) bytes += hidden_size * (kFloat + kFloatText);
  if (request.score) bytes += (prompt - request.score_from) * num_logits * kFloat;
  if (request.logprobs.prompt) {
    const std::int64_t tokens = prompt - request.logprobs.prompt_start;
    const std::int64_t top = *request.logprobs.prompt;
    bytes += tokens * logprobs_bytes(top);
  }
  if (request.logprobs.output) {
    const std::int64_t top = *request.logprobs.output;
    bytes += output * (logprobs_bytes(top) + (top + 1) * kLogprobText);
  }
  return bytes;
}

// Returns the place after the string that begins with the quote at `quote`, or the text's end if the string has no end.
std::size_t end_of_string(std::string_view json, std::size_t quote) {
  for (std::size_t begin = quote + 1; begin < json.size();) {
    const std::size_t end = json.find('"', begin);
    if (end == std::string_view::npos) break;
    // An odd number of backslashes escapes the quote.
    std::size_t text = end;
    while (text > begin && json[text - 1] == '\\') --text;
    if ((end - text) % 2 == 0) return end + 1;
    begin = end + 1;
  }
  return json.size();
}

}  // namespace

std::int64_t reading_bytes(std::string_view json) {
  std::int64_t values = 1;
  std::int64_t objects = 0;
  for (std::size_t at = 0; at < json.size();) {
    const std::size_t quote = std::min(json.find('"', at), json.size());
    for (const char c : json.substr(at, quote - at)) {
      values += static_cast<int>(c == ',') + static_cast<int>(c == '[') + static_cast<int>(c == '{');
      objects += static_cast<int>(c == '{');
    }
    at = end_of_string(json, quote);
  }
  return kCopiesOfText * std::ssize(json) + values * kBytesOfValue + objects * kBytesOfObject;
}

std::int64_t encoding_bytes(std::size_t text_bytes) {
  constexpr std::int64_t kBytesOfByte = 16;  // memory for each byte of text; 15 bytes were measured
  return kBytesOfByte * static_cast<std::int64_t>(text_bytes);
}

std::int64_t held_bytes(const ApiJob& job, std::int64_t num_logits, std::int64_t hidden_size) {
  std::int64_t bytes = 0;
  bool is_large = false;
  const Grammar* last = nullptr;  // choices of one prompt share a grammar
  for (const Request& request : job.requests) {
    if (request.grammar != nullptr && request.grammar.get() != last) bytes += grammar_bytes(*request.grammar);
    last = request.grammar.get();
    bytes += kRequest + kIdCopies * ids_bytes(request.prompt) + ids_bytes(request.input_embeds);
    bytes += parameter_bytes(request) + result_bytes(request, num_logits, hidden_size);
    is_large = is_large || request.return_hidden_states || request.logprobs.prompt || !request.generates();
  }
  return bytes + (is_large ? kPart : 0);
}

std::size_t kept_grammar_bytes(std::int64_t budget_bytes) {
  return std::min(kMaxGrammarMemory, static_cast<std::size_t>(budget_bytes) / 16);
}

}  // namespace tessera
