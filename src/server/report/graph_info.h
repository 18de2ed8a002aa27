// Reports how an answer's forwards ran, for requests with "return_graph_info": true.
//
//   {"cached_tokens": 16, "forwards": [{"phase": "prefill", "runner": "prefill", "size": 128,
//    "reason": "padded_to_size", "count": 1, "tokens": 100, "padding": 28}, …],
//    "tower": [{"size": 1024, "reason": "replayed", "count": 1, "images": 1, "patches": 1000, "padding": 24}, …]}
//
// "tower" is present if the vision tower computed images of the request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/engine/request.h"
#include "tessera/server/fields/json_writer.h"

namespace tessera {

struct GraphInfo {
  std::int64_t cached_tokens = 0;
  std::vector<GraphUse> uses{};
  TowerCounts tower{};
  static GraphInfo of(const Completion& end) {
    return {.cached_tokens = end.cached_tokens, .uses = end.graph_uses, .tower = end.tower_uses};
  }
};

// Writes the members into an object that the caller has opened.
void write_graph_info_members(JsonWriter& json, const GraphInfo& info);

inline void write_graph_info(JsonWriter& json, const GraphInfo& info) {
  write_graph_info_members(json.object(), info);
  json.end_object();
}

// Writes the list for OpenAI's answers, which may have several choices: one object for each choice, with its "index".
// The first index is `first`.
template <class Choices>
void write_graph_infos(JsonWriter& json, const Choices& choices, std::size_t first = 0) {
  json.array();
  for (const auto& choice : choices) {
    json.object().key("index").value(first++);
    write_graph_info_members(json, choice.graph_info);
    json.end_object();
  }
  json.end_array();
}

}  // namespace tessera
