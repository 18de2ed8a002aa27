#include "tessera/server/batches/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/json_fields.h"

namespace tessera {
namespace {

struct StatusNames {
  BatchStatus status;
  std::string_view name;
  std::string_view time;  // the member with the time at which the status was reached; "": there is none
};
constexpr StatusNames kStatuses[kNumBatchStatuses] = {
    {BatchStatus::kValidating, "validating", ""},
    {BatchStatus::kInProgress, "in_progress", "in_progress_at"},
    {BatchStatus::kFinalizing, "finalizing", "finalizing_at"},
    {BatchStatus::kCompleted, "completed", "completed_at"},
    {BatchStatus::kFailed, "failed", "failed_at"},
    {BatchStatus::kExpired, "expired", "expired_at"},
    {BatchStatus::kCancelling, "cancelling", "cancelling_at"},
    {BatchStatus::kCancelled, "cancelled", "cancelled_at"},
};

constexpr std::int64_t kMostNumber = std::int64_t{1} << 60;

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json time_or_null(std::int64_t time) { return time == 0 ? Json() : Json(time); }

Json usage_json(const Usage& usage) {
  JsonWriter json;
  write_response_usage(json, usage);
  return Json::parse(json.text(), "the usage").value();
}

Json errors_json(const std::vector<BatchFault>& errors) {
  if (errors.empty()) return {};
  Json data = Json::array();
  for (const BatchFault& error : errors) {
    data.push_back(Json::object({{"code", error.code},
                                 {"line", error.line == 0 ? Json() : Json(error.line)},
                                 {"message", error.message},
                                 {"param", Json()}}));
  }
  return Json::object({{"object", "list"}, {"data", std::move(data)}});
}

Result<std::vector<BatchFault>> read_errors(const Fields& fields) {
  std::vector<BatchFault> errors;
  const Json* list = fields.find("errors");
  const Json* data = list == nullptr ? nullptr : list->find("data");
  if (data == nullptr || !data->is_array()) return errors;
  for (const Json& each : data->as_array()) {
    const Fields error(each, fields.file(), "errors.");
    BatchFault fault;
    fault.code = TRY(error.optional_string("code")).value_or("");
    fault.message = TRY(error.optional_string("message")).value_or("");
    fault.line = TRY(error.optional_int("line", 0, kMostNumber)).value_or(0);
    errors.push_back(std::move(fault));
  }
  return errors;
}

}  // namespace

std::string_view batch_status_name(BatchStatus status) { return kStatuses[static_cast<std::size_t>(status)].name; }

bool Batch::ended() const {
  switch (status) {
    case BatchStatus::kCompleted:
    case BatchStatus::kFailed:
    case BatchStatus::kExpired:
    case BatchStatus::kCancelled: return true;
    default: return false;
  }
}

void Batch::reach(BatchStatus next, std::int64_t now) {
  status = next;
  reached[static_cast<std::size_t>(next)] = now;
}

Json Batch::to_json() const {
  Json json = Json::object({{"id", id},
                            {"object", "batch"},
                            {"endpoint", endpoint},
                            {"errors", errors_json(errors)},
                            {"input_file_id", input_file_id},
                            {"completion_window", "24h"},
                            {"status", batch_status_name(status)},
                            {"output_file_id", text_or_null(output_file_id)},
                            {"error_file_id", text_or_null(error_file_id)},
                            {"created_at", created_at},
                            {"expires_at", expires_at}});
  for (const StatusNames& names : kStatuses) {
    if (!names.time.empty())
      json.set(std::string(names.time), time_or_null(reached[static_cast<std::size_t>(names.status)]));
  }
  json.set("request_counts", Json::object({{"total", total}, {"completed", completed}, {"failed", failed}}));
  json.set("usage", usage_json(usage)).set("metadata", metadata);
  return json;
}

std::string batch_record(const Batch& batch) {
  Json json = batch.to_json();
  json.set("owner", batch.owner);
  json.set("output_age_s", batch.output_age_s);
  if (!batch.trace_parent.empty()) json.set("traceparent", batch.trace_parent);
  return json.dump();
}

Result<Batch> read_batch_record(const Json& json, std::string id) {
  const Fields fields(json, "the batch");
  const auto text = [&](std::string_view key) -> Result<std::string> {
    return TRY(fields.optional_string(key)).value_or("");
  };
  Batch batch{.id = std::move(id)};
  batch.owner = TRY(text("owner"));
  batch.endpoint = TRY(text("endpoint"));
  batch.trace_parent = TRY(text("traceparent"));
  batch.input_file_id = TRY(text("input_file_id"));
  batch.output_file_id = TRY(text("output_file_id"));
  batch.error_file_id = TRY(text("error_file_id"));
  const std::string status = TRY(text("status"));
  const auto* const found = std::ranges::find(kStatuses, std::string_view(status), &StatusNames::name);
  if (found == std::end(kStatuses)) return fields.wrong("status", "the status of a batch");
  batch.status = found->status;
  batch.created_at = TRY(fields.required_int("created_at", 0, kMostNumber));
  batch.expires_at = TRY(fields.required_int("expires_at", 0, kMostNumber));
  batch.output_age_s = TRY(fields.required_int("output_age_s", 0, kMostNumber));
  for (const StatusNames& names : kStatuses) {
    if (!names.time.empty())
      batch.reached[static_cast<std::size_t>(names.status)] =
          TRY(fields.optional_int(names.time, 0, kMostNumber)).value_or(0);
  }
  const Json* counts = fields.find("request_counts");
  if (counts == nullptr) return fields.wrong("request_counts", "an object");
  const Fields numbers = fields.inside("request_counts", *counts);
  batch.total = TRY(numbers.required_int("total", 0, kMostNumber));
  batch.completed = TRY(numbers.required_int("completed", 0, kMostNumber));
  batch.failed = TRY(numbers.required_int("failed", 0, kMostNumber));
  if (const Json* usage = fields.find("usage")) batch.usage = read_usage(*usage);
  if (const Json* metadata = fields.find("metadata")) batch.metadata = *metadata;
  batch.errors = TRY(read_errors(fields));
  return batch;
}

}  // namespace tessera
