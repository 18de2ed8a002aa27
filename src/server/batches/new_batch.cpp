#include "tessera/server/batches/new_batch.h"

#include <optional>
#include <string>

#include "tessera/server/batches/batch_lines.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/openai/sampling_fields.h"

namespace tessera {
namespace {

// Returns the seconds for which the batch's answer files are kept.
ApiResult<std::int64_t> read_output_age(const ApiFields& fields) {
  const Json* age = TRY(fields.object("output_expires_after"));
  if (age == nullptr) return kMostFileAge;
  const ApiFields inner(*age, "output_expires_after.");
  if (TRY(inner.string("anchor")).value_or("created_at") != "created_at")
    return inner.wrong("anchor", "\"created_at\"");
  return TRY(inner.integer("seconds", kLeastFileAge, kMostFileAge)).value_or(kMostFileAge);
}

}  // namespace

ApiResult<Batch> read_new_batch(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kBatches, model.allow_unknown_fields));
  Batch batch;
  const std::optional<std::string> file = TRY(fields.string("input_file_id"));
  if (!file) return fields.wrong("input_file_id", "the id of a file that was uploaded with the purpose \"batch\"");
  const std::optional<std::string> endpoint = TRY(fields.string("endpoint"));
  if (!endpoint || !batch_kind(*endpoint)) return fields.wrong("endpoint", batch_urls());
  if (TRY(fields.string("completion_window")) != "24h") return fields.wrong("completion_window", "\"24h\"");
  batch.input_file_id = *file;
  batch.endpoint = *endpoint;
  TRY(check_metadata(fields));
  if (const Json* metadata = fields.find("metadata")) batch.metadata = *metadata;
  batch.output_age_s = TRY(read_output_age(fields));
  return batch;
}

}  // namespace tessera
