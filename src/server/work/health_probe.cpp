#include "tessera/server/work/health_probe.h"

namespace tessera {
namespace {

Request probe_request(bool generates) {
  Request request{.prompt = {TokenId(0)}, .wants_text = false, .priority = kProbePriority};
  request.stop.max_new_tokens = 1;
  if (!generates) request.pooling = Pooling::kLast;
  request.stop.ignore_eos = true;
  return request;
}

}  // namespace

void HealthProbe::ask(Call call) {
  calls_.push_back(std::move(call));
  // Starts no second probe while one runs, even if all clients of the running probe have left. Both probes would have
  // the same ticket, and their events could not be distinguished.
  if (!std::exchange(under_way_, true)) submit_(kTicket, probe_request(generates_));
}

void HealthProbe::dispatch(std::span<const EngineThread::Event> events) {
  if (!under_way_) return;
  for (const EngineThread::Event& event : events) {
    if (event.ticket != kTicket || event.event.finish == FinishReason::kNone) continue;
    under_way_ = false;
    if (event.event.finish == FinishReason::kError) return fail_all(api_error(event.event.error));
    for (const Call& call : std::exchange(calls_, {})) call.respond_json("");
    return;
  }
}

void HealthProbe::fail_all(const ApiError& error) {
  for (const Call& call : std::exchange(calls_, {})) call.refuse(error);
}

}  // namespace tessera
