// Turns the events of a streamed completion into a RequestRecord, which says when each token came.
#pragma once

#include <string>
#include <string_view>

#include "tessera/load/latency.h"
#include "tessera/load/server_events.h"

namespace tessera {

class StreamRecord {
 public:
  // `record` must outlive this object. If `keep_ids` is true and the server sends ids (return_token_ids), this object
  // fills RequestRecord::output_ids.
  StreamRecord(RequestRecord& record, bool keep_ids) : record_(record), keep_ids_(keep_ids) {}

  // Reads the next `bytes` of the body, which arrived at `now_s`, and adds the events in them to the record. Each event
  // says how many tokens there are so far (stream_options.continuous_usage_stats). If the server does not report this,
  // each event with text counts as one token.
  void push(std::string_view bytes, double now_s);
  // Ends the record. Call it after the last byte. A stream that was cut off counts as failed.
  void end();

 private:
  void event(std::string_view data, double now_s);
  void tokens(std::int64_t count, double now_s);
  void fail(std::string reason);

  RequestRecord& record_;
  bool keep_ids_;
  ServerEvents events_;
  bool done_ = false;
};

// Returns the message that an error's body contains, as one line. The body may have OpenAI's form or any other.
std::string error_message(std::string_view body);

}  // namespace tessera
