// An ApiJob is the work of one HTTP request: the requests for the engine, and the Answer that turns the events of these
// requests into the response.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/request.h"
#include "tessera/server/fields/json_parts.h"
#include "tessera/server/fields/usage.h"
#include "tessera/server/http/api_error.h"
#include "tessera/server/http/random_id.h"

namespace tessera {

// Turns the events of a job's requests into the response. One thread at a time uses it.
class Answer {
 public:
  virtual ~Answer() = default;
  // Processes the next event of request `index`. `end` is null except at the request's last event. Appends to `stream`
  // what a stream sends for this event: whole server-sent events, or nothing. Not called for an event with an error.
  virtual void on_event(std::size_t index, const RequestEvent& event, Completion* end, std::string& stream) = 0;
  // Returns ok, or the reason why there can be no answer. Called after each on_event(). Some functions that make jobs
  // also call it before the first event. After an error, only stream_failure() is called.
  virtual Status failure() const { return ok_status(); }
  // Returns the text that a stream sends before stream_end(). Called after the last event of all requests.
  virtual std::string last_events() { return ""; }
  // Returns a stream's content type.
  virtual std::string_view stream_type() const { return "text/event-stream"; }
  // stream_end() returns the text that ends a stream after success. stream_failure() returns the text that ends a
  // stream if a failure comes after the stream's beginning. The defaults have OpenAI's form.
  virtual std::string stream_end() const { return "data: [DONE]\n\n"; }
  virtual std::string stream_failure(const ApiError& error) const {
    return "data: " + error.to_json() + "\n\n" + stream_end();
  }
  // Returns whether a stream sends keep_alive() while the engine is silent, so that proxies keep the connection open.
  virtual bool keeps_alive() const { return false; }
  // Returns the text that a stream sends while the engine is silent, even before the first event.
  virtual std::string keep_alive() { return ""; }
  // Returns the text that ends a stream whose job was cancelled by another HTTP request (LiveJobs::cancel).
  virtual std::string cancelled() { return ""; }
  // Returns the body of an answer that is not streamed. Called after the last event of all requests.
  virtual std::string body() = 0;
  // Returns the token counts of the events so far. Batches add them up. Answers of routes that batches cannot call
  // return zeros.
  virtual Usage usage() const { return {}; }
  // Returns the body in parts if making it at once could delay other streams. Otherwise returns nothing. The parts
  // refer to memory of the answer. After this call no other function of the answer is called.
  virtual std::optional<JsonParts> large_body() { return std::nullopt; }
  // Returns, in parts, the events that on_event() held back from a stream because they may be large. The stream sends
  // last_events() after these events.
  virtual std::optional<JsonParts> large_events() { return std::nullopt; }
};

struct ApiJob {
  std::string id{};  // the id of the answer
  std::vector<Request> requests{};
  // The ids by which a client may end the requests. Each request has one id. If empty, every request has the answer's
  // id.
  std::vector<std::string> request_ids{};
  bool stream = false;
  std::string note{};  // text of the header X-Tessera-Note; "": no header
  std::unique_ptr<Answer> answer{};
  // If set, the job runs in the background: it sends nothing to its client, and continues after the client has left.
  // This function then gets the stream's text on the I/O thread, and `last` marks the end.
  std::function<void(std::string_view text, bool last)> deliver{};
};

// Appends "data: <json>\n\n".
inline void append_server_sent_event(std::string& stream, std::string_view json) {
  stream += "data: ";
  stream += json;
  stream += "\n\n";
}
inline std::string server_sent_event(std::string_view json) {
  std::string event;
  append_server_sent_event(event, json);
  return event;
}

// Return the seconds and the nanoseconds since 1970.
std::int64_t unix_time();
std::int64_t unix_nanoseconds();
// Returns the time as "2026-08-06T09:15:23.481920Z".
std::string iso_time();

}  // namespace tessera
