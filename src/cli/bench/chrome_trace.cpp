#include "tessera/cli/bench/chrome_trace.h"

#include <utility>

namespace tessera::cli {
namespace {

Json naming(const char* what, std::int64_t process, const std::string& name) {
  Json args = Json::object();
  args.set("name", name);
  Json event = Json::object();
  event.set("name", what).set("ph", "M").set("pid", process).set("args", std::move(args));
  return event;
}

}  // namespace

void ChromeTrace::name_process(std::int64_t process, const std::string& name) {
  events_.push_back(naming("process_name", process, name));
}

void ChromeTrace::name_track(std::int64_t process, std::int64_t track, const std::string& name) {
  Json event = naming("thread_name", process, name);
  event.set("tid", track);
  events_.push_back(std::move(event));
}

void ChromeTrace::add(Span span) {
  constexpr double kMicroseconds = 1e3;  // microseconds in a millisecond; the format counts microseconds
  Json event = Json::object();
  event.set("name", std::move(span.name)).set("cat", std::move(span.category)).set("ph", "X");
  event.set("ts", span.begin_ms * kMicroseconds).set("dur", (span.end_ms - span.begin_ms) * kMicroseconds);
  event.set("pid", span.process).set("tid", span.track).set("args", std::move(span.args));
  events_.push_back(std::move(event));
}

Json ChromeTrace::finish(Json about) && {
  Json trace = Json::object();
  trace.set("traceEvents", std::move(events_)).set("displayTimeUnit", "ms").set("otherData", std::move(about));
  return trace;
}

}  // namespace tessera::cli
