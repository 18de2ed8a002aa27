// Implements the text and token functions of tessera.h.
#include <fmt/format.h>
#include <tessera.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tessera/capi/errors.h"
#include "tessera/capi/handles.h"
#include "tessera/server/openai/chat_request.h"

namespace tessera::capi {
namespace {

static_assert(sizeof(int32_t) == sizeof(TokenId));

int32_t* copy_out(const std::vector<TokenId>& ids) {
  auto* copy = static_cast<int32_t*>(std::malloc(std::max<std::size_t>(ids.size(), 1) * sizeof(int32_t)));
  if (copy == nullptr) throw std::bad_alloc();
  for (std::size_t i = 0; i < ids.size(); ++i) copy[i] = ids[i].value();
  return copy;
}

tessera_code refuse_no_tokenizer(tessera_error** error) {
  return fail(error, TESSERA_UNIMPLEMENTED, "the model was opened without a tokenizer; --tokenizer-path names one");
}

}  // namespace
}  // namespace tessera::capi

using namespace tessera;
using namespace tessera::capi;

tessera_code tessera_tokenize(tessera_engine* engine, const char* text, size_t text_size, int special, int32_t** ids,
                              size_t* count, tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_tokenize", "engine");
    if (text == nullptr) return refuse_null(error, "tessera_tokenize", "text");
    if (ids == nullptr) return refuse_null(error, "tessera_tokenize", "ids");
    if (count == nullptr) return refuse_null(error, "tessera_tokenize", "count");
    const ServedModel& model = engine->engine->model();
    if (model.tokenizer == nullptr) return refuse_no_tokenizer(error);
    const std::string_view given(text, text_size == SIZE_MAX ? std::strlen(text) : text_size);
    ApiResult<std::vector<TokenId>> made = model.encode(given, special != 0, "text");
    if (!made.ok()) return fail(error, made.error());
    *ids = copy_out(*made);
    *count = made->size();
    return TESSERA_OK;
  });
}

tessera_code tessera_detokenize(tessera_engine* engine, const int32_t* ids, size_t count, int skip_special, char** text,
                                size_t* text_size, tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_detokenize", "engine");
    if (ids == nullptr && count > 0) return refuse_null(error, "tessera_detokenize", "ids");
    if (text == nullptr) return refuse_null(error, "tessera_detokenize", "text");
    const ServedModel& model = engine->engine->model();
    if (model.tokenizer == nullptr) return refuse_no_tokenizer(error);
    std::vector<TokenId> tokens;
    tokens.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || ids[i] >= model.vocab_size) {
        return fail(error, TESSERA_INVALID_ARGUMENT,
                    fmt::format("id {} at {} is not the model's; accepted: 0 to {}", ids[i], i, model.vocab_size - 1));
      }
      tokens.emplace_back(ids[i]);
    }
    const std::string decoded = model.tokenizer->decode(tokens, skip_special != 0);
    *text = capi::copy_out(std::string_view(decoded));
    if (text_size != nullptr) *text_size = decoded.size();
    return TESSERA_OK;
  });
}

tessera_code tessera_apply_chat_template(tessera_engine* engine, const char* body, char** prompt,
                                         tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_apply_chat_template", "engine");
    if (body == nullptr) return refuse_null(error, "tessera_apply_chat_template", "body");
    if (prompt == nullptr) return refuse_null(error, "tessera_apply_chat_template", "prompt");
    ApiResult<std::string> rendered = render_chat(engine->engine->model(), body);
    if (!rendered.ok()) return fail(error, rendered.error());
    *prompt = capi::copy_out(std::string_view(*rendered));
    return TESSERA_OK;
  });
}
