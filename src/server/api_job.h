// An HTTP request as work for the engine: the engine requests it consists of, and the Answer made of their events.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/request.h"
#include "tessera/server/fields/json_parts.h"

namespace tessera {

// Turns the events of a job's requests into the response. Used by one thread at a time.
class Answer {
 public:
  virtual ~Answer() = default;
  // The next event of request `index`; `end` with its last one. Appends to `stream` what a stream sends now: whole
  // server-sent events, or nothing. Errors do not come here.
  virtual void on_event(std::size_t index, const RequestEvent& event, Completion* end, std::string& stream) = 0;
  // After on_event(): why there can be no answer; nothing more is asked of it then.
  virtual Status failure() const { return ok_status(); }
  // After the last event of all requests, of a stream: what it sends before "[DONE]".
  virtual std::string last_events() { return ""; }
  // After the last event of all requests, of no stream: the body.
  virtual std::string body() = 0;
  // Gives the body in parts where it may be large, or take long enough to hold others' streams up; else nothing.
  // The parts borrow from the answer, which is asked for nothing else then.
  virtual std::optional<JsonParts> large_body() { return std::nullopt; }
};

struct ApiJob {
  std::string id{};  // the answer's
  std::vector<Request> requests{};
  bool stream = false;
  std::string note{};  // for the client, in the header X-Tessera-Note; "": none
  std::unique_ptr<Answer> answer{};
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

// `prefix` and 32 random hexadecimal digits.
std::string make_id(std::string_view prefix);
// Seconds since 1970.
std::int64_t unix_time();

}  // namespace tessera
