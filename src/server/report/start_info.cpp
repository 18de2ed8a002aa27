#include "tessera/server/report/start_info.h"

namespace tessera {

Json start_json(const Engine& engine) {
  const Timeline& start = engine.start();
  Json phases = Json::array();
  for (const Timeline::Phase& phase : start.phases()) {
    Json json = Json::object();
    json.set("name", phase.name).set("begin_s", phase.begin_s).set("end_s", phase.end_s);
    phases.push_back(std::move(json));
  }
  Json first;
  if (const std::optional<Timeline::Phase>& token = engine.first_token()) {
    first = Json::object();
    first.set("begin_s", token->begin_s).set("end_s", token->end_s);
  }
  Json json = Json::object();
  json.set("phases", std::move(phases)).set("total_s", start.end_s()).set("uncovered_s", start.uncovered_s());
  return json.set("first_token", std::move(first));
}

}  // namespace tessera
