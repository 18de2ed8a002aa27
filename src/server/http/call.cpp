#include "tessera/server/http/call.h"

#include <algorithm>
#include <cstdint>

#include "tessera/base/log.h"
#include "tessera/server/http/bodies/body_encoder.h"
#include "tessera/server/http/random_id.h"
#include "tessera/server/memory_budget.h"

namespace tessera {
namespace {

void add_note(HttpResponse& response, std::string_view note) {
  if (!note.empty()) response.headers.emplace_back("X-Tessera-Note", note);
}

// Adds a request-id header if the path belongs to Anthropic's protocol, in which every answer has one.
void add_request_id(HttpResponse& response, std::string_view path) {
  if (error_shape_of(path) != ErrorShape::kAnthropic) return;
  const auto is_id = [](const auto& header) { return header.first == kRequestIdHeader; };
  if (std::ranges::none_of(response.headers, is_id)) response.headers.emplace_back(kRequestIdHeader, make_id("req_"));
}

// Adds the header traceparent, with which a client finds the request's span in its trace.
void add_trace(HttpResponse& response, const GenerationFacts& facts) {
  if (!facts.trace_answer.empty()) response.headers.emplace_back("traceparent", facts.trace_answer);
}

// The number of bytes that are compressed at once on the I/O thread, which takes less than a millisecond. A longer body
// is compressed and sent in parts of this size. Between two parts, the thread serves other connections.
constexpr std::size_t kEncodedAtOnce = std::size_t{64} << 10;

void add_coding(HttpResponse& response, std::string_view coding) {
  if (coding.empty()) return;
  response.headers.emplace_back("Content-Encoding", coding);
  response.headers.emplace_back("Vary", "Accept-Encoding");
}

bool has_coding(const HttpResponse& response) {
  return std::ranges::any_of(response.headers, [](const auto& header) { return header.first == "Content-Encoding"; });
}

}  // namespace

// A body that is being compressed and sent in parts.
struct Call::EncodedBody {
  std::string body;
  BodyEncoder encoder;
  std::int64_t held;  // bytes that the call's charge held before the encoder was charged
  std::size_t taken = 0;

  bool done() const { return taken == body.size(); }
  std::string next() {
    const std::string_view part = std::string_view(body).substr(taken, kEncodedAtOnce);
    taken += part.size();
    return encoder.encode(part, done());
  }
};

std::string_view Call::accepted_coding() const { return choose_coding(request().header("Accept-Encoding")); }

std::string_view Call::affordable_coding() const {
  const std::string_view coding = accepted_coding();
  const bool affordable =
      !coding.empty() && memory().try_set(memory().bytes() + static_cast<std::int64_t>(kEncoderBytes));
  return affordable ? coding : std::string_view();
}

void Call::respond(HttpResponse response, std::string_view detail) const {
  metrics_->answered(route_, response.status);
  log(response.status, detail);
  add_request_id(response, request().path);
  add_trace(response, generation());
  if (response.body.size() < kLeastEncodedBytes || has_coding(response)) return exchange_.respond(std::move(response));
  if (response.body.size() > kEncodedAtOnce) return respond_in_parts(std::move(response));
  // The encoder lives for less than a millisecond, and only one at a time, so it is not charged.
  if (const std::string_view coding = accepted_coding(); !coding.empty()) {
    add_coding(response, coding);
    response.body = BodyEncoder(coding).encode(response.body, /*last=*/true);
  }
  exchange_.respond(std::move(response));
}

// Answers with a body that is longer than kEncodedAtOnce, compressed if the client accepts that.
void Call::respond_in_parts(HttpResponse response) const {
  if (request().head_only && !accepted_coding().empty()) {
    add_coding(response, accepted_coding());
    response.body.clear();  // not compressed, because it would be dropped
    exchange_.start_stream(response);
    return exchange_.finish();
  }
  const std::int64_t held = memory().bytes();
  const std::string_view coding = affordable_coding();
  if (coding.empty()) return exchange_.respond(std::move(response));
  add_coding(response, coding);
  const auto parts = std::make_shared<EncodedBody>(std::move(response.body), BodyEncoder(coding), held);
  response.body = parts->next();
  exchange_.start_stream(response);
  send_rest(parts);
}

void Call::send_rest(const std::shared_ptr<EncodedBody>& parts) const {
  exchange_.on_sent([call = *this, parts] {
    call.exchange_.write(parts->next());
    if (!parts->done()) return call.send_rest(parts);
    (void)call.memory().set(parts->held);  // cannot fail, because it gives memory back
    call.exchange_.finish();
  });
}

void Call::respond_json(std::string body, std::string_view detail, std::string_view note,
                        std::string_view coding) const {
  HttpResponse response{.body = std::move(body), .headers = {}};
  add_note(response, note);
  add_coding(response, coding);
  respond(std::move(response), detail);
}

void Call::refuse(const ApiError& error) const {
  respond(error.to_response(error_shape_of(request().path)), error.message);
}

void Call::start(HttpResponse response, std::string_view note) const {
  metrics_->answered(route_, response.status);
  add_note(response, note);
  add_request_id(response, request().path);
  add_trace(response, generation());
  exchange_.start_stream(response);
}

void Call::start_stream(std::string first, std::string_view content_type, std::string_view note) const {
  HttpResponse response{.content_type = std::string(content_type), .body = std::move(first), .headers = {}};
  response.headers.emplace_back("Cache-Control", "no-cache");
  start(std::move(response), note);
}

void Call::start_json(std::string first, std::string_view note, std::string_view coding) const {
  HttpResponse response{.body = std::move(first), .headers = {}};
  add_coding(response, coding);
  start(std::move(response), note);
}

void Call::finish(std::string_view detail) const {
  log(200, detail);
  exchange_.finish();
}

void Call::fail(const ApiError& error) const {
  if (!exchange_.answered()) return refuse(error);
  log(error.http_status, error.message);
  exchange_.break_off();
}

void Call::log(int status, std::string_view detail) const {
  // Writes the line at every log level but "off", because the log of requests has an option of its own.
  if (!logged_ || !log_enabled("server", LogLevel::kError)) return;
  log_line("server", LogLevel::kInfo,
           fmt::format("{} {} {} {:.3f} s{}{}", request().method, route_, status, seconds(), detail.empty() ? "" : ": ",
                       detail));
}

}  // namespace tessera
