#include "tessera/capi/answer_paths.h"

#include <fmt/format.h>

#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/completion_request.h"
#include "tessera/server/openai/generate_request.h"
#include "tessera/server/openai/pooled/classify_request.h"
#include "tessera/server/openai/pooled/embedding_request.h"
#include "tessera/server/openai/pooled/rerank_request.h"
#include "tessera/server/openai/pooled/score_request.h"

namespace tessera::capi {
namespace {

struct AnswerPath {
  std::string_view path;
  ApiResult<ApiJob> (*prepare)(const ServedModel& model, std::string_view body);
};

// Each path that takes requests, with the function that reads the bodies of these requests.
constexpr AnswerPath kPaths[] = {
    {"/generate", prepare_generate},        {"/v1/completions", prepare_completion},
    {"/v1/chat/completions", prepare_chat}, {"/v1/embeddings", prepare_embeddings},
    {"/v1/classify", prepare_classify},     {"/v1/rerank", prepare_rerank},
    {"/v1/score", prepare_score},
};

}  // namespace

ApiResult<ApiJob> prepare(const ServedModel& model, std::string_view path, std::string_view body) {
  std::string known;
  for (const AnswerPath& answered : kPaths) {
    if (answered.path == path) return answered.prepare(model, body);
    known += (known.empty() ? "" : ", ") + std::string(answered.path);
  }
  return ApiError{.http_status = 404,
                  .message = fmt::format("no requests are answered at \"{}\"; accepted: {}", path, known),
                  .param = {},
                  .code = {}};
}

}  // namespace tessera::capi
