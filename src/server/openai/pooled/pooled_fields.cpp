#include "tessera/server/openai/pooled/pooled_fields.h"

#include <limits>
#include <utility>

namespace tessera {

ApiResult<PooledFields> read_pooled_fields(const ApiFields& fields, const ServedModel& model) {
  constexpr std::int64_t kMaxPriority = std::numeric_limits<std::int32_t>::max();
  PooledFields out;
  out.truncation = TRY(read_truncation(fields, model, /*asked=*/0));
  out.add_special_tokens = TRY(fields.boolean_or("add_special_tokens", true));
  out.use_activation = TRY(fields.boolean("use_activation"));
  if (const auto v = TRY(fields.integer("priority", -kMaxPriority, kMaxPriority))) out.priority = *v;
  if (const auto v = TRY(fields.number("timeout_s", 0, kMaxTimeoutSeconds))) out.timeout_s = *v;
  return out;
}

ApiResult<Request> PooledFields::make_request(std::vector<TokenId> prompt, const ServedModel& model,
                                              const std::string& param) const {
  truncation.apply(prompt);
  Request request{.prompt = std::move(prompt), .wants_text = false, .priority = priority, .timeout_s = timeout_s};
  TRY(model.set_length(request, /*asked=*/0, /*otherwise=*/0, param));
  return request;
}

}  // namespace tessera
