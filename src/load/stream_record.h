// The events of a streamed completion become a RequestRecord: which tokens came when.
#pragma once

#include <string>
#include <string_view>

#include "tessera/load/latency.h"
#include "tessera/load/server_events.h"

namespace tessera {

class StreamRecord {
 public:
  // `record` outlives it.
  explicit StreamRecord(RequestRecord& record) : record_(record) {}

  // Bytes of the body that came at `now_s`. Each event says how many tokens there are so far
  // (stream_options.continuous_usage_stats); of a server that does not, each event with a text is one token.
  void push(std::string_view bytes, double now_s);
  // After the last byte: a stream that was cut off has failed.
  void end();

 private:
  void event(std::string_view data, double now_s);
  void tokens(std::int64_t count, double now_s);
  void fail(std::string reason);

  RequestRecord& record_;
  ServerEvents events_;
  bool done_ = false;
};

// The message of an error's body, in OpenAI's form or any other; one line.
std::string error_message(std::string_view body);

}  // namespace tessera
