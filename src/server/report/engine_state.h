// GET /engine_state: the data that the page at / draws. It contains the model, the parts into which its graphs are cut,
// each captured size with its numbers of forwards and padding tokens, the number of forwards for each dispatch reason,
// latencies, and memory.
//
// Threads: constructed before the engine has its own thread, then read from any thread.
#pragma once

#include <string>

#include "tessera/engine/engine.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/metrics/latency_window.h"
#include "tessera/server/served_model.h"

namespace tessera {

class EngineState {
 public:
  EngineState(const Engine& engine, const ServedModel& model);

  // Returns the state as JSON, about 10 kB. Takes some tens of microseconds.
  std::string body(const EngineStats& stats, const ServerLatencies& latencies) const;

 private:
  // The members that never change, each as an unfinished JSON object.
  std::string head_;
  std::string prefill_head_;
  std::string decode_head_;
  std::string vision_head_;  // empty: the model has no vision tower
};

}  // namespace tessera
