// Keeps, for each row kernel and number of rows, the schedule that was measured to be the fastest. A schedule is how a
// device divides the rows among threads (RowKernelCode::schedules). All schedules of a kernel give the same bits, so
// the choice may differ between two binds, and between ranks. A problem is a row kernel and a number of rows. The
// functions below are used at these times:
//
//   bind            uses chosen(problem), or else the device's default, and calls note(problem, how to bind it again)
//   idle moments    take_unmeasured(device) returns a problem, row_tuning.h measures it, improve() keeps the result
//   later starts    learn() loads the results of earlier processes
//
// The class is thread-safe.
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
  std::string kernel;     // the result of row_kernel_key()
  std::int64_t rows = 0;  // number of rows for which the kernel is bound
  friend auto operator<=>(const RowProblem&, const RowProblem&) = default;
};
// Returns the hash of a kernel's text and of its builder's name.
std::string row_kernel_key(const RowKernelBuilder& builder, const RowKernel& kernel);

// A bound row kernel that is to be measured. The measurement allocates memory for tensors of the same sizes.
struct RowInstance {
  std::string name;                         // the group's name, for logs and reports
  std::weak_ptr<const RowKernelCode> code;  // expires with the engine that loaded it
  std::vector<TensorView> operands;         // tensors without addresses
  std::vector<TensorView> results;
  const Device* device = nullptr;  // only compared, never dereferenced
};

struct MeasuredSchedules {
  std::string name;
  std::int64_t chosen = 0;
  std::vector<std::pair<std::int64_t, double>> us;  // time of each schedule, the device's default first
  friend bool operator==(const MeasuredSchedules&, const MeasuredSchedules&) = default;
};

class RowSchedules {
 public:
  static constexpr std::size_t kMost = 8192;  // maximum number of problems; each takes about 150 bytes of JSON

  std::optional<std::int64_t> chosen(const RowProblem& problem) const;
  // Notes a problem to be measured. Does nothing if the problem was measured or taken already, or if kMost problems
  // wait to be measured.
  void note(const RowProblem& problem, RowInstance instance);
  // Returns a noted problem of this device that no process has measured. Returns each problem at most once.
  std::optional<std::pair<RowProblem, RowInstance>> take_unmeasured(const Device& device);
  void improve(const RowProblem& problem, MeasuredSchedules measured);
  // Keeps a result of another process. Results of this process take precedence.
  void learn(const RowProblem& problem, MeasuredSchedules measured);
  std::map<RowProblem, MeasuredSchedules> measured() const;

  // Returns [["<hash of the kernel, 32 hexadecimal digits>", rows, "device", chosen schedule, [[schedule, us], …]], …],
  // sorted by hash and rows.
  Json to_json() const;
  // Learns all results in `json`, which to_json() of another process returned. If `json` is anything else, the function
  // returns kDataLoss and learns nothing.
  Status remember(const Json& json);
  static Result<std::map<RowProblem, MeasuredSchedules>> from_json(const Json& json);

 private:
  mutable std::mutex mutex_;
  std::map<RowProblem, MeasuredSchedules> measured_;
  std::map<std::pair<RowProblem, const Device*>, RowInstance> waiting_;
  std::set<RowProblem> taken_;
};

// Returns the schedules of this process.
RowSchedules& row_schedules();

}  // namespace tessera
