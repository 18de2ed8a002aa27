#include "tessera/server/batches/batch_routes.h"

#include <fmt/format.h>

#include <vector>

#include "tessera/server/api_job.h"
#include "tessera/server/batches/batch_spans.h"
#include "tessera/server/batches/new_batch.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/query.h"
#include "tessera/server/fields/query_fields.h"
#include "tessera/server/refusals.h"

namespace tessera {
namespace {

constexpr std::string_view kBatchRoute = "/v1/batches/";
constexpr std::int64_t kBatchWindowS = 24 * 3600;
constexpr std::int64_t kMostBatchListed = 100;
constexpr std::int64_t kBatchesListed = 20;

ApiResult<std::string> cancel_batch(BatchStore& batches, const std::string& id, const std::string& owner) {
  Batch batch = TRY(batches.find(id, owner));
  ApiResult<Batch> changed = batches.update(id, [](Batch& running) {
    if (!running.ended() && running.status != BatchStatus::kFinalizing)
      running.reach(BatchStatus::kCancelling, unix_time());
  });
  if (batch.ended())
    return ApiError{
        .http_status = 400,
        .message = fmt::format("the batch is {}; accepted: one that has not ended", batch_status_name(batch.status)),
        .param = "batch_id",
        .code = "batch_ended"};
  batch = TRY(std::move(changed));
  return batch.to_json().dump();
}

}  // namespace

void BatchRoutes::add_to(Router& router) {
  const auto add = [&](const char* method, const char* path, void (BatchRoutes::*handle)(const Call&) const) {
    router.add({method, path, [this, handle](const Call& call) {
                  if (batches_ == nullptr) return call.refuse(no_file_folder());
                  (this->*handle)(call);
                }});
  };
  router.add({"POST", "/v1/batches", [this](Call call) { make(std::move(call)); }});
  add("GET", "/v1/batches", &BatchRoutes::list);
  add("GET", "/v1/batches/*", &BatchRoutes::get);
  add("POST", "/v1/batches/*", &BatchRoutes::cancel);
}

void BatchRoutes::make(Call call) const {
  const auto make = [this, owner = work_.owner(call), trace_parent = kept_trace_parent(call.generation().trace_parent)](
                        const ServedModel& model, std::string_view body) -> ApiResult<std::string> {
    Batch batch = TRY(read_new_batch(model, body));
    if (batches_ == nullptr) return no_file_folder();
    StoredFile file = TRY(files_->find(batch.input_file_id, owner));
    if (file.purpose != "batch")
      return invalid_field("input_file_id",
                           fmt::format("the file has the purpose \"{}\"; accepted: \"batch\"", file.purpose));
    batch.owner = owner;
    batch.trace_parent = trace_parent;
    batch.created_at = unix_time();
    batch.expires_at = batch.created_at + kBatchWindowS;
    batch = TRY(batches_->add(std::move(batch)));
    changed_();
    return batch.to_json().dump();
  };
  reader_.read<std::string>(std::move(call), make, [](const Call& made, ApiResult<std::string> body) {
    if (!body.ok()) return made.refuse(body.error());
    made.respond_json(*std::move(body));
  });
}

void BatchRoutes::list(const Call& call) const {
  work_.answer(call, TextWork::kSmall, [this, owner = work_.owner(call), query = call.request().query] {
    std::vector<Json> items;
    for (const Batch& batch : batches_->list(owner)) items.push_back(batch.to_json());
    return list_body(query, items, kMostBatchListed, kBatchesListed);
  });
}

void BatchRoutes::get(const Call& call) const {
  PathTarget target = target_of(call.request().path, kBatchRoute);
  if (!target.action.empty()) return call.refuse(nothing_at(call.request().path));
  ApiResult<Batch> batch = batches_->find(target.id, work_.owner(call));
  if (!batch.ok()) return call.refuse(batch.error());
  call.respond_json(batch->to_json().dump());
}

void BatchRoutes::cancel(const Call& call) const {
  PathTarget target = target_of(call.request().path, kBatchRoute);
  if (target.action != "/cancel") return call.refuse(nothing_at(call.request().path));
  work_.answer(call, TextWork::kSmall, [this, id = std::move(target.id), owner = work_.owner(call)] {
    ApiResult<std::string> body = cancel_batch(*batches_, id, owner);
    changed_();
    return body;
  });
}

}  // namespace tessera
