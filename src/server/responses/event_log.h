// The stored events of a background response. A client can follow the response, leave, and later continue after the
// last event that it has seen.
//
// Threads: used on the I/O thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/server/http/call.h"
#include "tessera/server/responses/response_store.h"

namespace tessera {

class EventLog : public std::enable_shared_from_this<EventLog> {
 public:
  // Charges the text to `store`, which outlives the log.
  explicit EventLog(ResponseStore& store) : store_(store), charge_(store.new_charge()) {}

  // Appends whole server-sent events. If the store has no room for them, the log drops all its events, keeps none from
  // now on, and breaks off the streams of its followers.
  void append(std::string_view events);
  // Returns the store's error if the events were dropped.
  const ApiStatus& kept() const { return kept_; }
  // Records that no event will follow, and ends the streams of the followers.
  void end();
  // Streams all events whose numbers are greater than `after` (-1: all events), including future ones. Error: 400 if no
  // event has the number `after` yet, or if the events were dropped.
  ApiStatus follow(Call call, std::int64_t after);

 private:
  struct Follower;
  void pump(const std::shared_ptr<Follower>& follower);
  void pump_all();

  ResponseStore& store_;
  MemoryCharge charge_;
  std::string text_;
  std::vector<std::size_t> starts_;  // the offset in text_ at which each event begins
  bool ended_ = false;
  ApiStatus kept_ = api_ok();  // an error once the events were dropped
  std::vector<std::shared_ptr<Follower>> followers_;
};

}  // namespace tessera
