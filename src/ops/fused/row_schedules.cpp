#include "tessera/ops/fused/row_schedules.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/hash.h"

namespace tessera {
namespace {

Result<std::pair<RowProblem, MeasuredSchedules>> entry_of(const Json& json) {
  const auto wrong = [&] {
    return data_loss("an entry does not hold the measured schedules of a row kernel: " + json.dump());
  };
  if (!json.is_array() || json.as_array().size() != 5) return wrong();
  const Json::Array& fields = json.as_array();
  if (!fields[0].is_string() || fields[0].as_string().size() != 32 || !fields[1].is_int() || !fields[2].is_string() ||
      !fields[3].is_int() || !fields[4].is_array())
    return wrong();
  const RowProblem problem{.kernel = fields[0].as_string(), .rows = fields[1].as_int()};
  MeasuredSchedules measured{.name = fields[2].as_string(), .chosen = fields[3].as_int(), .us = {}};
  for (const Json& pair : fields[4].as_array()) {
    if (!pair.is_array() || pair.as_array().size() != 2 || !pair.as_array()[0].is_int() ||
        !pair.as_array()[1].is_number())
      return wrong();
    const double us = pair.as_array()[1].as_double();
    if (!std::isfinite(us) || us <= 0) return wrong();
    measured.us.emplace_back(pair.as_array()[0].as_int(), us);
  }
  const bool was_timed = std::ranges::any_of(measured.us, [&](const auto& us) { return us.first == measured.chosen; });
  if (problem.rows < 1 || !was_timed) return wrong();
  return std::pair(problem, std::move(measured));
}

}  // namespace

std::string row_kernel_key(const RowKernelBuilder& builder, const RowKernel& kernel) {
  Hasher hasher;
  hasher.add(builder.name());
  hasher.add(to_text(kernel));
  return hasher.finish().hex();
}

std::optional<std::int64_t> RowSchedules::chosen(const RowProblem& problem) const {
  const std::lock_guard lock(mutex_);
  const auto it = measured_.find(problem);
  if (it == measured_.end()) return std::nullopt;
  return it->second.chosen;
}

void RowSchedules::note(const RowProblem& problem, RowInstance instance) {
  const std::lock_guard lock(mutex_);
  if (measured_.contains(problem) || taken_.contains(problem)) return;
  const std::pair key(problem, instance.device);
  if (waiting_.size() < kMost || waiting_.contains(key)) waiting_.insert_or_assign(key, std::move(instance));
}

std::optional<std::pair<RowProblem, RowInstance>> RowSchedules::take_unmeasured(const Device& device) {
  const std::lock_guard lock(mutex_);
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->first.second != &device) {
      ++it;
      continue;
    }
    std::pair found(it->first.first, std::move(it->second));
    it = waiting_.erase(it);
    if (found.second.code.expired() || !taken_.insert(found.first).second) continue;
    return found;
  }
  return std::nullopt;
}

void RowSchedules::improve(const RowProblem& problem, MeasuredSchedules measured) {
  const std::lock_guard lock(mutex_);
  if (measured_.size() < kMost || measured_.contains(problem)) measured_[problem] = std::move(measured);
}

void RowSchedules::learn(const RowProblem& problem, MeasuredSchedules measured) {
  const std::lock_guard lock(mutex_);
  if (measured_.size() < kMost) measured_.try_emplace(problem, std::move(measured));
}

std::map<RowProblem, MeasuredSchedules> RowSchedules::measured() const {
  const std::lock_guard lock(mutex_);
  return measured_;
}

Json RowSchedules::to_json() const {
  Json::Array all;
  for (const auto& [problem, measured] : this->measured()) {
    Json::Array times;
    for (const auto& [schedule, us] : measured.us) times.emplace_back(Json::Array{Json(schedule), Json(us)});
    all.emplace_back(Json::Array{Json(problem.kernel), Json(problem.rows), Json(measured.name), Json(measured.chosen),
                                 Json(std::move(times))});
  }
  return Json(std::move(all));
}

Result<std::map<RowProblem, MeasuredSchedules>> RowSchedules::from_json(const Json& json) {
  if (!json.is_array()) return data_loss("the measured schedules of row kernels must be a JSON array");
  std::map<RowProblem, MeasuredSchedules> all;
  for (const Json& entry : json.as_array()) all.insert(TRY(entry_of(entry)));
  return all;
}

Status RowSchedules::remember(const Json& json) {
  std::map<RowProblem, MeasuredSchedules> more = TRY(from_json(json));
  for (auto& [problem, measured] : more) learn(problem, std::move(measured));
  return ok_status();
}

RowSchedules& row_schedules() {
  static RowSchedules all;
  return all;
}

}  // namespace tessera
