#include "tessera/runner/step_profiler.h"

#include <algorithm>
#include <utility>

namespace tessera {

std::string_view host_work_name(HostWork work) {
  static constexpr std::array<std::string_view, kNumHostWorks> kNames = {
      "idle", "idle work", "requests", "schedule", "plan", "inputs", "launch", "wait", "collect", "text", "deliver"};
  return kNames[static_cast<std::size_t>(work)];
}

Result<std::unique_ptr<StepProfiler>> StepProfiler::start(Device& device, Stream& stream) {
  std::unique_ptr<StepProfiler> profiler(new StepProfiler(device, stream));
  profiler->first_ = TRY(device.create_event(EventKind::kTime));
  TRY(stream.record(*profiler->first_));
  TRY(stream.synchronize());
  profiler->origin_ = std::chrono::steady_clock::now();
  return profiler;
}

double StepProfiler::now_ms() const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - origin_).count();
}

void StepProfiler::open(HostWork work) { open_.push_back({work, now_ms(), 0, host_.size()}); }

void StepProfiler::close() {
  const Open done = open_.back();
  open_.pop_back();
  const double end = now_ms();
  const double own = end - done.begin_ms - done.inner_ms;
  if (!open_.empty()) open_.back().inner_ms += end - done.begin_ms;
  const std::int64_t forward = done.work < HostWork::kWait    ? num_submitted_
                               : done.work == HostWork::kWait ? std::ssize(forwards_)
                                                              : std::max<std::int64_t>(std::ssize(forwards_) - 1, 0);
  // Neighbouring spans of the same kind of work are merged, because with one span for each token the list would be too
  // long.
  const bool again = host_.size() > (open_.empty() ? 0 : open_.back().first_own) && done.first_own == host_.size() &&
                     host_.back().work == done.work && host_.back().forward == forward;
  if (again) {
    host_.back().end_ms = end;
    host_.back().own_ms += own;
  } else {
    host_.push_back({done.work, forward, done.begin_ms, end, own});
  }
}

void StepProfiler::begin_forward() { marks_of(num_submitted_).used = 0; }

Status StepProfiler::record(Marks& marks) {
  if (marks.used == marks.events.size()) {
    marks.events.push_back(TRY(device_.create_event(EventKind::kTime)));
    marks.names.emplace_back();
  }
  return stream_.record(*marks.events[marks.used++]);
}

Status StepProfiler::begin_device() {
  Marks& marks = marks_of(num_submitted_);
  return marks.used > 0 ? ok_status() : record(marks);
}

Status StepProfiler::mark(std::string part) {
  Marks& marks = marks_of(num_submitted_);
  marks.names[marks.used - 1] = std::move(part);
  return record(marks);
}

void StepProfiler::submitted(const Decision& decision) { marks_of(num_submitted_++).decision = decision; }

Status StepProfiler::collected() {
  const std::int64_t number = std::ssize(forwards_);
  const Marks& marks = marks_of(number);
  const double before_ms = forwards_.empty() ? 0 : forwards_.back().begin_ms;
  const Event& before = forwards_.empty() ? *first_ : *marks_of(number - 1).events.front();
  ProfiledForward forward{.decision = marks.decision};
  forward.begin_ms = before_ms + TRY(marks.events.front()->milliseconds_since(before));
  for (std::size_t i = 0; i + 1 < marks.used; ++i) {
    const double ms = TRY(marks.events[i + 1]->milliseconds_since(*marks.events[i]));
    const auto known = std::ranges::find(forward.parts, marks.names[i], &DevicePart::name);
    if (known == forward.parts.end()) {
      forward.parts.push_back({marks.names[i], ms});
    } else {
      known->ms += ms;
    }
  }
  forward.end_ms = forward.begin_ms + TRY(marks.events[marks.used - 1]->milliseconds_since(*marks.events.front()));
  forwards_.push_back(std::move(forward));
  return ok_status();
}

}  // namespace tessera
