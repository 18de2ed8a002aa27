// The schedule that each row kernel uses at each number of rows, chosen by measurement. A schedule is a way in which a
// device shares the rows out among threads (RowKernelCode::schedules). All schedules of a kernel give the same bits, so
// a choice may change between two binds and between ranks.
//
//   bind            chosen(problem), else the device's own; note(problem, how to bind it again)
//   idle moments    take_unmeasured(device), measured (row_tuning.h), improve(problem, what was found)
//   later starts    learn(problem, what an earlier one found)
//
// Thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/ops/fused/row_kernel_builder.h"

namespace tessera {

struct RowProblem {
  std::string kernel;     // row_kernel_key()
  std::int64_t rows = 0;  // number of rows that is bound
  friend auto operator<=>(const RowProblem&, const RowProblem&) = default;
};
// The hash of a kernel's text and of its builder's name.
std::string row_kernel_key(const RowKernelBuilder& builder, const RowKernel& kernel);

// The inputs of a measurement, which runs on tensors of the same sizes in memory of its own.
struct RowInstance {
  std::string name;                         // the group's name, for people
  std::weak_ptr<const RowKernelCode> code;  // expires with the engine that loaded it
  std::vector<TensorView> operands;         // views without addresses
  std::vector<TensorView> results;
  const Device* device = nullptr;  // only compared, never used
};

struct MeasuredSchedules {
  std::string name;
  std::int64_t chosen = 0;
  std::vector<std::pair<std::int64_t, double>> us;  // microseconds of each schedule, the device's own first
  friend bool operator==(const MeasuredSchedules&, const MeasuredSchedules&) = default;
};

class RowSchedules {
 public:
  static constexpr std::size_t kMost = 8192;  // the most problems that are kept; each takes about 150 bytes of JSON

  std::optional<std::int64_t> chosen(const RowProblem& problem) const;
  // Notes a problem for measurement. It is dropped where the problem has been measured, or where kMost problems wait.
  void note(const RowProblem& problem, RowInstance instance);
  // Gives out a noted problem of this device that nobody has measured. Each problem is given out once.
  std::optional<std::pair<RowProblem, RowInstance>> take_unmeasured(const Device& device);
  void improve(const RowProblem& problem, MeasuredSchedules measured);
  // Keeps the measurement of another process, unless this process has measured the problem itself.
  void learn(const RowProblem& problem, MeasuredSchedules measured);
  std::map<RowProblem, MeasuredSchedules> measured() const;

  // [["<32 hexadecimal digits>", rows, "name", chosen, [[schedule, us], …]], …], ascending.
  Json to_json() const;
  // Learns everything in another process's to_json(). kDataLoss for any other content; nothing is learnt then.
  Status remember(const Json& json);
  static Result<std::map<RowProblem, MeasuredSchedules>> from_json(const Json& json);

 private:
  mutable std::mutex mutex_;
  std::map<RowProblem, MeasuredSchedules> measured_;
  std::map<std::pair<RowProblem, const Device*>, RowInstance> waiting_;
  std::set<RowProblem> taken_;
};

// The table of this process.
RowSchedules& row_schedules();

}  // namespace tessera
