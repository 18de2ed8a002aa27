// Which schedule each row kernel takes at each number of rows, as measured. A schedule is how a device shares the rows
// out among threads (RowKernelCode::schedules); all of one kernel give the same bits, so that a choice may change
// between two binds, and between ranks.
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
  std::int64_t rows = 0;  // of the size that is bound
  friend auto operator<=>(const RowProblem&, const RowProblem&) = default;
};
// The hash of a kernel's text and of the name of what builds it.
std::string row_kernel_key(const RowKernelBuilder& builder, const RowKernel& kernel);

// What a measurement needs: tensors of the same sizes, in memory of its own.
struct RowInstance {
  std::string name;                         // the group's, for people
  std::weak_ptr<const RowKernelCode> code;  // gone with the engine that loaded it
  std::vector<TensorView> operands;         // without addresses
  std::vector<TensorView> results;
  const Device* device = nullptr;  // compared alone
};

struct MeasuredSchedules {
  std::string name;
  std::int64_t chosen = 0;
  std::vector<std::pair<std::int64_t, double>> us;  // of each schedule, the device's own first
  friend bool operator==(const MeasuredSchedules&, const MeasuredSchedules&) = default;
};

class RowSchedules {
 public:
  static constexpr std::size_t kMost = 8192;  // each about 150 bytes of JSON

  std::optional<std::int64_t> chosen(const RowProblem& problem) const;
  // Forgotten where the problem was measured, or where kMost wait.
  void note(const RowProblem& problem, RowInstance instance);
  // A noted problem of this device that nobody has measured. It is given out once.
  std::optional<std::pair<RowProblem, RowInstance>> take_unmeasured(const Device& device);
  void improve(const RowProblem& problem, MeasuredSchedules measured);
  // The same of another process: what this one has measured stays.
  void learn(const RowProblem& problem, MeasuredSchedules measured);
  std::map<RowProblem, MeasuredSchedules> measured() const;

  // [["<32 hexadecimal digits>", rows, "name", chosen, [[schedule, us], …]], …], ascending.
  Json to_json() const;
  // Learns all of another process's to_json(). kDataLoss for anything else, and then nothing is learnt.
  Status remember(const Json& json);
  static Result<std::map<RowProblem, MeasuredSchedules>> from_json(const Json& json);

 private:
  mutable std::mutex mutex_;
  std::map<RowProblem, MeasuredSchedules> measured_;
  std::map<std::pair<RowProblem, const Device*>, RowInstance> waiting_;
  std::set<RowProblem> taken_;
};

// This process's.
RowSchedules& row_schedules();

}  // namespace tessera
