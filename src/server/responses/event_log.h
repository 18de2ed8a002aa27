// The events of a background response, kept so that clients can follow it, leave, and come back after the last event
// that they have seen.
//
// Threads: the I/O thread.
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
  // The text is charged to `store`, which outlives the log.
  explicit EventLog(ResponseStore& store) : store_(store), charge_(store.new_charge()) {}

  // Appends whole server-sent events. If the store has no room for them, the log keeps no events from now on, and the
  // streams of those who follow it break off.
  void append(std::string_view events);
  // Says that no event will come. The streams of those who follow the log end.
  void end();
  // Starts a stream of the events after number `after` (-1: all), those to come included. Error: 400 if there is no
  // such number yet, or the events were dropped.
  ApiStatus follow(Call call, std::int64_t after);

 private:
  struct Follower;
  void pump(const std::shared_ptr<Follower>& follower);
  void pump_all();

  ResponseStore& store_;
  MemoryCharge charge_;
  std::string text_;
  std::vector<std::size_t> starts_;  // the byte where each event begins
  bool ended_ = false;
  bool dropped_ = false;
  std::vector<std::shared_ptr<Follower>> followers_;
};

}  // namespace tessera
