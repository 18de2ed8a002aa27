// GET /engine_state: what the page at / draws. The model and its parts, captured sizes with replays and padding,
// forwards by reason, latencies, memory.
//
// Threads: made before the engine has a thread of its own, then only read, from any thread.
#pragma once

#include <string>

#include "tessera/engine/engine.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/report/latency_window.h"
#include "tessera/server/served_model.h"

namespace tessera {

class EngineState {
 public:
  EngineState(const Engine& engine, const ServedModel& model);

  // JSON, some ten kilobytes; takes some tens of microseconds.
  std::string body(const EngineStats& stats, const ServerLatencies& latencies) const;

 private:
  // The constant parts, each as the beginning of a JSON object.
  std::string head_;
  std::string prefill_head_;
  std::string decode_head_;
  std::string vision_head_;  // empty: no tower
};

}  // namespace tessera
