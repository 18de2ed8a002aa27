#include "tessera/cli/bench/serve_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tessera/cli/table.h"

namespace tessera::cli {
namespace {

constexpr std::array kPhases = {ForwardPhase::kPrefill, ForwardPhase::kMixed, ForwardPhase::kDecode};
constexpr auto kIdle = static_cast<std::size_t>(HostWork::kIdle);
constexpr auto kIdleWork = static_cast<std::size_t>(HostWork::kIdleWork);

bool is_idle(HostWork work) { return work == HostWork::kIdle || work == HostWork::kIdleWork; }

// Returns the milliseconds between `begin_ms` and `end_ms` in which there was no request to work on.
double idle_within(const std::vector<HostSpan>& host, double begin_ms, double end_ms) {
  double idle = 0;
  // Spans are ordered by their ends.
  const auto first = std::ranges::lower_bound(host, begin_ms, {}, &HostSpan::end_ms);
  for (auto span = first; span != host.end(); ++span) {
    if (is_idle(span->work)) idle += std::max(0.0, std::min(end_ms, span->end_ms) - std::max(begin_ms, span->begin_ms));
    if (span->end_ms >= end_ms) break;
  }
  return idle;
}

// Returns the fraction of the span that lies within `during`. A run may begin or end in the middle of a span.
double share_within(const HostSpan& span, const TimeSpan& during) {
  const double length = span.end_ms - span.begin_ms;
  const double within = std::min(span.end_ms, during.end_ms) - std::max(span.begin_ms, during.begin_ms);
  return length <= 0 || within <= 0 ? 0 : within / length;
}

void add_forward(const StepFacts& facts, const ProfiledForward& forward, PhaseTimes& to) {
  ++to.forwards;
  to.requests += facts.requests;
  to.decoding += facts.decoding;
  to.tokens += facts.tokens;
  to.padding += forward.decision.padding;
  to.device_ms += forward.end_ms - forward.begin_ms;
  for (const DevicePart& part : forward.parts) {
    const auto known = std::ranges::find(to.parts, part.name, &DevicePart::name);
    if (known == to.parts.end()) {
      to.parts.push_back(part);
    } else {
      known->ms += part.ms;
    }
  }
}

// Adds a row with the milliseconds per forward for each phase, and with `total_ms` as a percentage of the whole time.
void add_row(const ServeTimes& times, const std::string& name, const std::function<double(const PhaseTimes&)>& ms_of,
             double total_ms, Table& table) {
  std::vector<std::string> row = {name};
  for (const PhaseTimes& phase : times.phases)
    row.push_back(number_text(ms_of(phase) / static_cast<double>(phase.forwards)));
  row.push_back(fmt::format("{:.1f} %", 100 * total_ms / times.total_ms));
  table.add(std::move(row));
}

double part_ms(const PhaseTimes& phase, const std::string& name) {
  const auto part = std::ranges::find(phase.parts, name, &DevicePart::name);
  return part == phase.parts.end() ? 0 : part->ms;
}

std::vector<std::string> part_names(const ServeTimes& times) {
  std::vector<std::string> names;
  for (const PhaseTimes& phase : times.phases)
    for (const DevicePart& part : phase.parts)
      if (std::ranges::find(names, part.name) == names.end()) names.push_back(part.name);
  return names;
}

Table times_table(const ServeTimes& times, const std::string& heading) {
  std::vector<std::string> headings = {heading};
  for (const PhaseTimes& phase : times.phases) headings.push_back(fmt::format(">{}", forward_phase_name(phase.phase)));
  headings.emplace_back(">of the time");
  return Table(std::move(headings));
}

double sum_of(const ServeTimes& times, const std::function<double(const PhaseTimes&)>& ms_of) {
  return std::accumulate(times.phases.begin(), times.phases.end(), 0.0,
                         [&](double sum, const PhaseTimes& phase) { return sum + ms_of(phase); });
}

std::string forwards_table(const ServeTimes& times) {
  Table table({"forwards", ">count", ">requests", ">decoding", ">tokens", ">padding"});
  for (const PhaseTimes& phase : times.phases) {
    const auto mean = [&](std::int64_t sum) {
      return number_text(static_cast<double>(sum) / static_cast<double>(phase.forwards));
    };
    table.add({std::string(forward_phase_name(phase.phase)), count_text(phase.forwards), mean(phase.requests),
               mean(phase.decoding), mean(phase.tokens), mean(phase.padding)});
  }
  return table.text();
}

}  // namespace

double ServeTimes::other_ms() const { return total_ms - std::accumulate(host_ms.begin(), host_ms.end(), 0.0); }

ServeTimes sum_up(const EngineProfile& profile, const TimeSpan& during) {
  ServeTimes times{.total_ms = during.end_ms - during.begin_ms};
  std::array<PhaseTimes, kPhases.size()> phases;
  for (std::size_t p = 0; p < kPhases.size(); ++p) phases[p].phase = kPhases[p];
  const auto phase_of = [&](const StepFacts& facts) -> PhaseTimes& {
    return phases[static_cast<std::size_t>(std::ranges::find(kPhases, facts.phase) - kPhases.begin())];
  };
  const auto within = [&](double ms) { return ms >= during.begin_ms && ms < during.end_ms; };
  for (std::size_t i = 0; i < profile.forwards.size(); ++i) {
    const ProfiledForward& forward = profile.forwards[i];
    if (!within(forward.begin_ms)) continue;
    PhaseTimes& phase = phase_of(profile.steps[i]);
    add_forward(profile.steps[i], forward, phase);
    times.device_ms += forward.end_ms - forward.begin_ms;
    const double free_ms = i == 0 ? during.begin_ms : std::max(profile.forwards[i - 1].end_ms, during.begin_ms);
    if (free_ms < forward.begin_ms)
      phase.waited_ms += forward.begin_ms - free_ms - idle_within(profile.host, free_ms, forward.begin_ms);
  }
  for (const HostSpan& span : profile.host) {
    const double own_ms = span.own_ms * share_within(span, during);
    const auto work = static_cast<std::size_t>(span.work);
    times.host_ms[work] += own_ms;
    const auto forward = static_cast<std::size_t>(span.forward);
    if (!is_idle(span.work) && forward < profile.steps.size()) phase_of(profile.steps[forward]).host_ms[work] += own_ms;
  }
  for (PhaseTimes& phase : phases)
    if (phase.forwards > 0) times.phases.push_back(std::move(phase));
  return times;
}

std::string serve_times_text(const ServeTimes& times) {
  Table device = times_table(times, "device, ms a forward");
  const auto device_ms = [](const PhaseTimes& phase) { return phase.device_ms; };
  const auto waited_ms = [](const PhaseTimes& phase) { return phase.waited_ms; };
  add_row(times, "in all", device_ms, times.device_ms, device);
  for (const std::string& name : part_names(times)) {
    const auto ms = [&](const PhaseTimes& phase) { return part_ms(phase, name); };
    add_row(times, "  " + name, ms, sum_of(times, ms), device);
  }
  add_row(times, "waits for the host before", waited_ms, sum_of(times, waited_ms), device);
  Table host = times_table(times, "engine's thread, ms a forward");
  for (std::size_t work = 0; work < kNumHostWorks; ++work) {
    if (is_idle(static_cast<HostWork>(work))) continue;
    const auto ms = [&](const PhaseTimes& phase) { return phase.host_ms[work]; };
    add_row(times, std::string(host_work_name(static_cast<HostWork>(work))), ms, times.host_ms[work], host);
  }
  const double idle = times.host_ms[kIdle] + times.host_ms[kIdleWork];
  return fmt::format("{}\n{}\n{}  idle {:.1f} %, other work {:.1f} % of {} s\n", forwards_table(times), device.text(),
                     host.text(), 100 * idle / times.total_ms, 100 * times.other_ms() / times.total_ms,
                     number_text(times.total_ms / 1000));
}

Json to_json(const ServeTimes& times) {
  const auto host_json = [](const std::array<double, kNumHostWorks>& ms) {
    Json json = Json::object();
    for (std::size_t work = 0; work < kNumHostWorks; ++work)
      json.set(std::string(host_work_name(static_cast<HostWork>(work))), ms[work]);
    return json;
  };
  Json phases = Json::array();
  for (const PhaseTimes& phase : times.phases) {
    Json parts = Json::object();
    for (const DevicePart& part : phase.parts) parts.set(part.name, part.ms);
    Json json = Json::object();
    json.set("phase", forward_phase_name(phase.phase)).set("forwards", phase.forwards);
    json.set("requests", phase.requests).set("decoding", phase.decoding);
    json.set("tokens", phase.tokens).set("padding", phase.padding);
    json.set("device_ms", phase.device_ms).set("device_waited_ms", phase.waited_ms);
    json.set("device_parts_ms", std::move(parts)).set("host_ms", host_json(phase.host_ms));
    phases.push_back(std::move(json));
  }
  Json json = Json::object();
  json.set("total_ms", times.total_ms).set("device_ms", times.device_ms).set("host_ms", host_json(times.host_ms));
  json.set("host_other_ms", times.other_ms()).set("phases", std::move(phases));
  return json;
}

void add_serve_timeline(const EngineProfile& profile, const TimeSpan& during, const std::string& name,
                        std::int64_t process, ChromeTrace& trace) {
  trace.name_process(process, name);
  trace.name_track(process, 1, "device");
  trace.name_track(process, 2, "engine's thread");
  const auto within = [&](double ms) { return ms >= during.begin_ms && ms < during.end_ms; };
  for (std::size_t i = 0; i < profile.forwards.size(); ++i) {
    const ProfiledForward& forward = profile.forwards[i];
    if (!within(forward.begin_ms)) continue;
    const StepFacts& facts = profile.steps[i];
    const Decision& how = forward.decision;
    Json args = Json::object();
    args.set("forward", i).set("requests", facts.requests).set("decoding", facts.decoding).set("tokens", facts.tokens);
    args.set("padding", how.padding).set("runner", runner_kind_name(how.runner)).set("size", how.size);
    args.set("reason", reason_name(how.reason)).set("running", facts.running).set("queued", facts.queued);
    for (const DevicePart& part : forward.parts) args.set(part.name + " ms", part.ms);
    trace.add({.name = fmt::format("{} {}", forward_phase_name(facts.phase), facts.tokens),
               .category = "device",
               .process = process,
               .track = 1,
               .begin_ms = forward.begin_ms,
               .end_ms = forward.end_ms,
               .args = std::move(args)});
  }
  for (const HostSpan& span : profile.host) {
    if (!within(span.begin_ms)) continue;
    Json args = Json::object();
    args.set("forward", span.forward).set("own_ms", span.own_ms);
    trace.add({.name = std::string(host_work_name(span.work)),
               .category = "host",
               .process = process,
               .track = 2,
               .begin_ms = span.begin_ms,
               .end_ms = span.end_ms,
               .args = std::move(args)});
  }
}

}  // namespace tessera::cli
