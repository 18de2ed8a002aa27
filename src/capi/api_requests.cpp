// Implements the request functions of tessera.h.
#include <fmt/format.h>
#include <tessera.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "tessera/capi/answer_paths.h"
#include "tessera/capi/errors.h"
#include "tessera/capi/handles.h"

namespace tessera::capi {
namespace {

// The size that each struct had in its first version. The structs of all callers have at least this size.
constexpr std::size_t kFirstSubmission = offsetof(tessera_submission, user) + sizeof(void*);
constexpr std::size_t kFirstEvent = offsetof(tessera_event, json_size) + sizeof(std::size_t);

tessera_code check_size(tessera_error** error, const char* name, std::size_t size, std::size_t least) {
  if (size >= least) return TESSERA_OK;
  return fail(error, TESSERA_INVALID_ARGUMENT,
              fmt::format("the size in {} is {}; accepted: sizeof({}), at least {}", name, size, name, least));
}

tessera_code timed_out(tessera_error** error, std::int64_t timeout_ms) {
  return fail(error, TESSERA_TIMEOUT, fmt::format("nothing came within {} ms", timeout_ms));
}

Result<std::unique_ptr<tessera_request>> submit(const std::shared_ptr<EmbeddedEngine>& engine, ApiJob job,
                                                std::shared_ptr<EventQueue> events) {
  auto made = std::make_unique<tessera_request>(tessera_request{.engine = engine, .job = nullptr, .events = events});
  made->job = TRY(engine->submit(std::move(job), std::move(events)));
  return made;
}

// Returns kFailedPrecondition if another process opened the request's engine. In that case the request never ends in
// this process.
Status check_process(const tessera_request& request) {
  const std::shared_ptr<EmbeddedEngine> engine = request.engine.lock();
  return engine == nullptr ? ok_status() : engine->check_process();
}

void cancel(const tessera_request& request) {
  if (request.events->ended()) return;
  if (const std::shared_ptr<EmbeddedEngine> engine = request.engine.lock()) engine->cancel(request.job);
}

}  // namespace
}  // namespace tessera::capi

using namespace tessera;
using namespace tessera::capi;

tessera_code tessera_submit(tessera_engine* engine, const tessera_submission* submission, tessera_request** request,
                            tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_submit", "engine");
    if (submission == nullptr) return refuse_null(error, "tessera_submit", "submission");
    if (request == nullptr) return refuse_null(error, "tessera_submit", "request");
    if (const tessera_code code = check_size(error, "tessera_submission", submission->size, kFirstSubmission);
        code != TESSERA_OK)
      return code;
    if (submission->path == nullptr) return refuse_null(error, "tessera_submit", "submission->path");
    if (submission->body == nullptr) return refuse_null(error, "tessera_submit", "submission->body");
    const std::size_t size = submission->body_size > 0 ? submission->body_size : std::strlen(submission->body);
    ApiResult<ApiJob> job = prepare(engine->engine->model(), submission->path, {submission->body, size});
    if (!job.ok()) return fail(error, job.error());
    Result<std::unique_ptr<tessera_request>> made =
        submit(engine->engine, *std::move(job), std::make_shared<EventQueue>(submission->on_event, submission->user));
    if (!made.ok()) return fail(error, made.status());
    *request = made->release();
    return TESSERA_OK;
  });
}

tessera_code tessera_request_next(tessera_request* request, int64_t timeout_ms, tessera_event* event,
                                  tessera_error** error) {
  return guarded(error, [&] {
    if (request == nullptr) return refuse_null(error, "tessera_request_next", "request");
    if (event == nullptr) return refuse_null(error, "tessera_request_next", "event");
    if (const tessera_code code = check_size(error, "tessera_event", event->size, kFirstEvent); code != TESSERA_OK)
      return code;
    if (request->events->has_callback())
      return fail(error, TESSERA_FAILED_PRECONDITION, "the request's events go to its callback");
    if (in_callback()) return refuse_in_callback(error, "tessera_request_next");
    if (const Status process = check_process(*request); !process.ok()) return fail(error, process);
    switch (request->events->take(timeout_ms, request->current)) {
      case EventQueue::Take::kTimeout: return timed_out(error, timeout_ms);
      case EventQueue::Take::kNoneLeft:
        return fail(error, TESSERA_FAILED_PRECONDITION, "the request has ended, and its last event was taken");
      case EventQueue::Take::kTaken: break;
    }
    event->kind = request->current.kind;
    event->code = request->current.code;
    event->json = request->current.json.c_str();
    event->json_size = request->current.json.size();
    return TESSERA_OK;
  });
}

tessera_code tessera_request_wait(tessera_request* request, int64_t timeout_ms, tessera_error** error) {
  return guarded(error, [&] {
    if (request == nullptr) return refuse_null(error, "tessera_request_wait", "request");
    if (in_callback()) return refuse_in_callback(error, "tessera_request_wait");
    if (const Status process = check_process(*request); !process.ok()) return fail(error, process);
    return request->events->wait(timeout_ms) ? TESSERA_OK : timed_out(error, timeout_ms);
  });
}

void tessera_request_cancel(tessera_request* request) {
  guarded(nullptr, [&] {
    if (request != nullptr && check_process(*request).ok()) cancel(*request);
    return TESSERA_OK;
  });
}

void tessera_request_free(tessera_request* request) {
  guarded(nullptr, [&] {
    const std::unique_ptr<tessera_request> owned(request);
    if (!owned || !check_process(*owned).ok()) return TESSERA_OK;
    cancel(*owned);
    owned->events->detach();
    return TESSERA_OK;
  });
}

tessera_code tessera_ask(tessera_engine* engine, const char* path, const char* body, char** answer,
                         tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_ask", "engine");
    if (path == nullptr) return refuse_null(error, "tessera_ask", "path");
    if (body == nullptr) return refuse_null(error, "tessera_ask", "body");
    if (answer == nullptr) return refuse_null(error, "tessera_ask", "answer");
    if (in_callback()) return refuse_in_callback(error, "tessera_ask");
    ApiResult<ApiJob> job = prepare(engine->engine->model(), path, body);
    if (!job.ok()) return fail(error, job.error());
    if (job->stream) {
      return fail(error, TESSERA_INVALID_ARGUMENT,
                  "\"stream\" is true; accepted by tessera_ask: false (tessera_submit streams)", "stream");
    }
    const Result<std::unique_ptr<tessera_request>> request =
        submit(engine->engine, *std::move(job), std::make_shared<EventQueue>(nullptr, nullptr));
    if (!request.ok()) return fail(error, request.status());
    EventQueue::Item item;
    (*request)->events->take(-1, item);
    if (item.kind == TESSERA_EVENT_ERROR) return fail(error, item.code, item.message);
    *answer = copy_out(item.json);
    return TESSERA_OK;
  });
}
