#include "tessera/server/openai/pooled/embedding_request.h"

#include <string>
#include <utility>
#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/openai/pooled/embedding_answer.h"
#include "tessera/server/openai/pooled/list_answer.h"
#include "tessera/server/openai/pooled/pooled_fields.h"
#include "tessera/server/openai/sampling_fields.h"

namespace tessera {
namespace {

ApiResult<bool> read_base64(const ApiFields& fields) {
  const std::string format = TRY(fields.string("encoding_format")).value_or("float");
  if (format != "float" && format != "base64") return fields.wrong("encoding_format", R"("float" or "base64")");
  return format == "base64";
}

}  // namespace

ApiResult<ApiJob> prepare_embeddings(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  TRY(model.check_named(json));
  TRY(model.check_embeds());
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kEmbeddings, model.allow_unknown_fields));
  const PooledFields pooled = TRY(read_pooled_fields(fields, model));
  EmbeddingStyle style{.id = TRY(read_answer_id(fields, "embd-")), .model = model.name, .embedding = *model.embedding};
  style.base64 = TRY(read_base64(fields));
  style.dimensions = TRY(fields.integer("dimensions", 1, model.hidden_size)).value_or(model.hidden_size);
  style.embedding.normalise = pooled.use_activation.value_or(style.embedding.normalise);

  ApiJob job{.id = style.id};
  job.requests = TRY(read_inputs(fields, pooled, model));
  for (Request& request : job.requests) request.pooling = model.embedding->pooling;
  style.inputs = job.requests.size();
  job.answer = make_embedding_answer(std::move(style));
  return job;
}

}  // namespace tessera
