#include "tessera/server/work/live_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/server/http/api_error.h"
#include "tessera/server/http/bodies/body_encoder.h"
#include "tessera/server/work/generation_facts.h"

namespace tessera {
namespace {

// The size of a part of a large body. A connection keeps a buffer of this size, so each part reuses the buffer.
constexpr std::size_t kPartBytes = std::size_t{128} << 10;
constexpr std::size_t kKeptStream = std::size_t{256} << 10;

ApiError error_of(const RequestEvent& event) {
  if (event.finish == FinishReason::kTimeout)
    return {
        .http_status = 408, .message = event.error.message(), .type = "timeout_error", .param = {}, .code = "timeout"};
  if (event.finish == FinishReason::kCancelled)
    return {.http_status = 400, .message = "the request was ended by /abort_request", .param = {}, .code = "aborted"};
  return api_error(event.error);
}

}  // namespace

struct LiveJobs::Job {
  Call call;
  ApiJob job;
  Ticket first_ticket = 0;
  std::size_t count = 0;      // number of requests; their tickets are first_ticket, first_ticket + 1, …
  std::size_t remaining = 0;  // number of requests that have not ended
  bool streaming = false;     // the stream's head was sent
  bool dropped = false;       // the tickets are forgotten
  bool generates = false;     // the requests output tokens; otherwise they have no result before they end
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t most_output_tokens = 0;          // number of output tokens of the longest request so far
  Clock::time_point last_sent{};                // time of the last send; before the first send, the call's arrival
  std::vector<Clock::time_point> last_token{};  // one for each request; before its first token, the call's arrival

  std::string summary(std::string_view how) const {
    return fmt::format("{} {}, {} prompt tokens, {} output tokens: {}", job.id, count == 1 ? "text" : "texts",
                       prompt_tokens, output_tokens, how);
  }
};

// The parts of a large body, or of a stream's large events. A body is compressed if its client accepts that.
struct LiveJobs::LargeParts {
  explicit LargeParts(JsonParts its_parts, std::string_view coding = {}) : parts(std::move(its_parts)) {
    if (!coding.empty()) encoder.emplace(coding);
  }

  // Returns the next part, compressed if there is an encoder. A short body that is only one part is not compressed.
  std::string next() {
    std::string part = parts.next(kPartBytes);
    const bool is_short = !begun && parts.done() && part.size() < kLeastEncodedBytes;
    begun = true;
    if (is_short) encoder.reset();
    return encoder ? encoder->encode(part, parts.done()) : part;
  }
  bool done() const { return parts.done(); }
  std::string_view coding() const { return encoder ? encoder->coding() : std::string_view(); }

  JsonParts parts;
  std::optional<BodyEncoder> encoder{};
  bool begun = false;
};

LiveJobs::~LiveJobs() {
  for (auto& [ticket, place] : places_) place.job->dropped = true;
}

void LiveJobs::start(Call call, ApiJob job) {
  std::vector<Request> requests = std::move(job.requests);
  const auto live = std::make_shared<Job>(Job{.call = std::move(call), .job = std::move(job)});
  live->first_ticket = next_ticket_;
  live->count = live->remaining = requests.size();
  live->last_token.assign(live->count, live->call.arrived());
  live->last_sent = live->call.arrived();
  live->generates = std::ranges::any_of(requests, &Request::generates);
  next_ticket_ += live->count;
  note_start(live->call.generation(), live->job.id, requests);
  for (std::size_t i = 0; i < live->count; ++i) places_.emplace(live->first_ticket + i, Place{live, i});
  for (std::size_t i = 0; i < live->count; ++i) hooks_.submit(live->first_ticket + i, std::move(requests[i]));
  if (live->count == 0) return end(live, Clock::now());
  if (live->job.deliver) return;
  if (live->job.stream && live->job.answer->keeps_alive()) watch(live, hooks_.silent_s);
  // on_disconnect() must be called last, because it calls back at once if the client has already left.
  live->call.on_disconnect([this, weak = std::weak_ptr<Job>(live)] {
    const std::shared_ptr<Job> gone = weak.lock();
    if (gone == nullptr || gone->dropped) return;
    gone->call.log(499, gone->summary("the client has left"));
    drop(*gone);
  });
}

void LiveJobs::dispatch(std::span<EngineThread::Event> events) {
  const Clock::time_point now = Clock::now();
  for (EngineThread::Event& event : events) {
    const auto found = places_.find(event.ticket);
    if (found == places_.end()) continue;
    const Place place = found->second;
    try {
      dispatch(event, place, now);
    } catch (const std::exception& e) {  // usually std::bad_alloc; only this job fails
      fail(*place.job, api_error(internal_error(e.what())));
    }
  }
}

void LiveJobs::dispatch(EngineThread::Event& event, const Place& place, Clock::time_point now) {
  Job& job = *place.job;
  observe(job, place.index, event, now);
  const FinishReason finish = event.event.finish;
  if (finish != FinishReason::kNone) {
    places_.erase(event.ticket);
    --job.remaining;
  }
  const bool without_result = finish == FinishReason::kCancelled && !job.generates;
  if (finish == FinishReason::kError || finish == FinishReason::kTimeout || without_result) {
    job.call.generation().finish = finish_reason_name(finish);
    fail(job, error_of(event.event));
    return;
  }
  if (event.end != nullptr) {
    job.prompt_tokens += event.end->prompt_tokens;
    job.output_tokens += std::ssize(event.end->output_ids);
    note_end(job.call.generation(), *event.end, finish);
    job.most_output_tokens = std::max<std::int64_t>(job.most_output_tokens, std::ssize(event.end->output_ids));
  }
  if (stream_.capacity() > kKeptStream) stream_ = {};
  stream_.clear();
  job.job.answer->on_event(place.index, event.event, event.end.get(), stream_);
  if (const Status failure = job.job.answer->failure(); !failure.ok()) {
    fail(job, api_error(failure));
    return;
  }
  if (job.job.deliver) {
    job.job.deliver(stream_, /*last=*/false);
  } else if (job.job.stream) {
    send(job, stream_, now);
  }
  if (job.remaining == 0) end(place.job, now);
}

void LiveJobs::observe(Job& job, std::size_t index, const EngineThread::Event& event, Clock::time_point now) const {
  const auto seconds_since = [&](Clock::time_point then) { return std::chrono::duration<double>(now - then).count(); };
  if (event.event.token) {
    Clock::time_point& last = job.last_token[index];
    if (last == job.call.arrived()) {
      metrics_.first_token(seconds_since(last));
    } else {
      metrics_.next_token(seconds_since(last));
    }
    last = now;
  }
  if (event.end != nullptr) {
    metrics_.ended({.seconds = seconds_since(job.call.arrived()),
                    .prompt_tokens = event.end->prompt_tokens,
                    .output_tokens = std::ssize(event.end->output_ids),
                    .finish = event.event.finish,
                    .queue_s = event.end->queue_ms * 1e-3,
                    .first_token_s = event.end->time_to_first_token_ms * 1e-3,
                    .engine_s = event.end->total_ms * 1e-3});
  }
}

// Sends stream data. The head of the HTTP response is sent with the first event, so that a refusal by the engine can
// still have its own HTTP status.
void LiveJobs::send(Job& job, std::string_view data, Clock::time_point now) const {
  if (!data.empty()) job.last_sent = now;
  if (!job.streaming) {
    job.streaming = true;
    job.call.start_stream(std::string(data), job.job.answer->stream_type(), job.job.note);
  } else if (!data.empty()) {
    job.call.write(data);
  }
}

void LiveJobs::watch(const std::shared_ptr<Job>& job, double seconds) const {
  hooks_.after(seconds, [this, weak = std::weak_ptr<Job>(job)] {
    const std::shared_ptr<Job> live = weak.lock();
    if (live == nullptr || live->dropped) return;
    const Clock::time_point now = Clock::now();
    double left = hooks_.silent_s - std::chrono::duration<double>(now - live->last_sent).count();
    if (left <= 0) {
      send(*live, live->job.answer->keep_alive(), now);
      left = hooks_.silent_s;
    }
    watch(live, left);
  });
}

void LiveJobs::end(const std::shared_ptr<Job>& job, Clock::time_point now) {
  job->dropped = true;
  metrics_.call_ended(job->most_output_tokens);
  Answer& answer = *job->job.answer;
  if (job->job.deliver) {
    job->job.deliver(answer.last_events() + answer.stream_end(), /*last=*/true);
    job->call.log(200, job->summary("done in the background"));
  } else if (job->job.stream) {
    if (std::optional<JsonParts> parts = answer.large_events())
      return build_part(job, std::make_shared<LargeParts>(*std::move(parts)));
    send(*job, answer.last_events() + answer.stream_end(), now);
    job->call.finish(job->summary("done"));
  } else if (std::optional<JsonParts> parts = answer.large_body()) {
    build_part(job, std::make_shared<LargeParts>(*std::move(parts), job->call.affordable_coding()));
  } else {
    job->call.respond_json(answer.body(), job->summary("done"), job->job.note);
  }
}

void LiveJobs::build_part(const std::shared_ptr<Job>& job, const std::shared_ptr<LargeParts>& parts) const {
  hooks_.build_elsewhere(
      job->call, [parts] { return parts->next(); },
      [this, job, parts](const std::string& part) { send_part(job, parts, part); });
}

// Sends a part. If the body has only one part, sends it as a whole, with its length.
void LiveJobs::send_part(const std::shared_ptr<Job>& job, const std::shared_ptr<LargeParts>& parts,
                         const std::string& part) const {
  if (job->job.stream) {
    Answer& answer = *job->job.answer;
    send(*job, parts->done() ? part + answer.last_events() + answer.stream_end() : part, Clock::now());
  } else if (std::exchange(job->streaming, true)) {
    job->call.write(part);
  } else if (parts->done()) {
    return job->call.respond_json(part, job->summary("done"), job->job.note, parts->coding());
  } else {
    job->call.start_json(part, job->job.note, parts->coding());
  }
  if (parts->done()) return job->call.finish(job->summary("done"));
  job->call.on_sent([this, job, parts] { build_part(job, parts); });
}

void LiveJobs::cancel(std::string_view id) {
  for (const auto& [ticket, place] : places_) {
    if (!place.job->job.deliver || place.job->job.id != id) continue;
    const std::shared_ptr<Job> job = place.job;
    drop(*job);
    job->job.deliver(job->job.answer->cancelled(), /*last=*/true);
    job->call.log(200, job->summary("cancelled in the background"));
    return;
  }
}

std::size_t LiveJobs::abort(std::string_view id) {
  std::size_t count = 0;
  for (const auto& [ticket, place] : places_) {
    const ApiJob& job = place.job->job;
    const bool is_meant =
        id.empty() || job.id == id || (!job.request_ids.empty() && job.request_ids[place.index] == id);
    if (!is_meant) continue;
    hooks_.abort(ticket);
    ++count;
  }
  return count;
}

void LiveJobs::fail_all(const ApiError& error) {
  std::vector<std::shared_ptr<Job>> all;
  for (const auto& [ticket, place] : places_) all.push_back(place.job);
  for (const std::shared_ptr<Job>& job : all) {  // `all` has a job once for each of its requests
    if (!job->dropped) fail(*job, error);
  }
}

void LiveJobs::fail(Job& job, const ApiError& error) {
  drop(job);
  if (job.job.deliver) {
    job.job.deliver(job.job.answer->stream_failure(error), /*last=*/true);
    job.call.log(error.http_status, job.summary(error.message));
    return;
  }
  if (!job.streaming) {
    job.call.refuse(error);
    return;
  }
  job.call.write(job.job.answer->stream_failure(error));
  job.call.finish(job.summary(error.message));
}

void LiveJobs::drop(Job& job) {
  job.dropped = true;
  for (std::size_t i = 0; i < job.count; ++i) {
    if (places_.erase(job.first_ticket + i) == 0) continue;
    hooks_.cancel(job.first_ticket + i);
    metrics_.cancelled();
  }
}

}  // namespace tessera
