// Lists the members that the objects of a request may have. They are the fields of OpenAI's, Anthropic's, SGLang's and
// vLLM's requests, in the versions that request_fields.json names, and this server's own fields. request_fields.json is
// compiled in and says how each field is treated. docs/request-fields.md shows its content as tables. No field is
// silently ignored: a field that is not served is an error, unless it cannot change the answer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/server/fields/api_fields.h"

namespace tessera {

enum class FieldTreatment : std::uint8_t {
  kServed,
  kHarmless,  // accepted, because it cannot change what is generated
  kRefused,   // refused unless the value means the same as an absent field: null, a value in "accepted" of
              // request_fields.json, or a list of such values
  kChecked,   // refused if the value would have an effect in this request. The effect depends on other fields, so the
              // function that reads the field checks the value
};

// Bits for the JSON objects that have fields of their own: the requests of each route, and objects inside them.
namespace request_object {
inline constexpr std::uint32_t kChat = 1;
inline constexpr std::uint32_t kCompletions = 2;
inline constexpr std::uint32_t kGenerate = 4;
inline constexpr std::uint32_t kSamplingParams = 8;  // inside a /generate request
inline constexpr std::uint32_t kStreamOptions = 16;
inline constexpr std::uint32_t kStructuredOutputs = 32;
inline constexpr std::uint32_t kTokenize = 64;
inline constexpr std::uint32_t kDetokenize = 128;
inline constexpr std::uint32_t kEmbeddings = 256;
inline constexpr std::uint32_t kRerank = 512;
inline constexpr std::uint32_t kScore = 1024;       // scores of pairs of texts
inline constexpr std::uint32_t kLabelScore = 2048;  // scores of tokens after a prompt
inline constexpr std::uint32_t kMessages = 4096;    // requests to Anthropic's /v1/messages
inline constexpr std::uint32_t kCountTokens = 8192;
inline constexpr std::uint32_t kResponses = 1U << 16;
inline constexpr std::uint32_t kBatches = 1U << 17;
inline constexpr std::uint32_t kLoadAdapter = 1 << 18;
inline constexpr std::uint32_t kUnloadAdapter = 1 << 19;
inline constexpr std::uint32_t kAbort = 1 << 20;
inline constexpr std::uint32_t kOllamaChat = 1 << 21;
inline constexpr std::uint32_t kOllamaGenerate = 1 << 22;
inline constexpr std::uint32_t kOllamaOptions = 1 << 23;  // "options" in the two requests above
inline constexpr std::uint32_t kOllamaEmbed = 1 << 24;
inline constexpr std::uint32_t kOllamaEmbeddings = 1 << 25;
inline constexpr std::uint32_t kOllamaShow = 1 << 26;
inline constexpr std::uint32_t kCloseSession = 1 << 27;
inline constexpr std::uint32_t kClassify = 1 << 28;
}  // namespace request_object

struct AcceptedField {
  std::string_view name;
  FieldTreatment treatment;  // kServed or kHarmless
  std::string_view remark;   // may be ""
  std::string_view schema;   // a JSON schema of the accepted values except null; "{}": any value
  bool required = false;     // true: every one of `objects` must have the field
};
// Returns the fields that are served or harmless in at least one of `objects`, in the order of request_fields.json.
// `objects` is one or more bits.
std::vector<AcceptedField> accepted_fields(std::uint32_t objects);

// Checks the members of `fields`. `object` is one bit. Returns a 400 with code unsupported_value for a field that is
// kRefused, unless the field's value means the same as an absent field. Returns a 400 with code unknown_parameter and
// the nearest names for an unlisted field, unless `ignore_unknown`. Does not check a field that is kChecked, because
// the function that reads the field checks it. Cost: some microseconds for a common request.
ApiStatus check_request_fields(const ApiFields& fields, std::uint32_t object, bool ignore_unknown);

}  // namespace tessera
