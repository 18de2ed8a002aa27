// Holds the measured costs of forwards, in milliseconds, for each runner and size. Both replays and eager runs are
// measured. Costs between measured sizes are interpolated. Without measurements there are no costs, and dispatch always
// pads.
//
// Prefills are measured without cached prefixes, and decodes after a context of at most one page. A longer context adds
// the same attention time to a padded and to an unpadded forward, so it does not change which of the two is cheaper.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

enum class RunnerKind : std::uint8_t { kEager, kPrefill, kDecode };

// The result of a comparison between two forms of a prefill size: its full graph, which includes attention, and the
// graphs of its pieces.
struct FullCost {
  double ratio = 1;    // upper bound of the median of (full replay time / pieces' time); see full_measurement.h
  bool equal = false;  // whether both forms gave bitwise equal results
};

// The factor by which a full graph must be faster than its pieces. This factor is required in addition to the
// confidence bound in FullCost::ratio, because the gain must be worth the graph's memory.
inline constexpr double kFullMargin = 1.01;

class CostTable {
 public:
  // Adds a measurement. For kPrefill and kDecode it is the time of a replay at the captured size. For kEager it is the
  // time of an eager prefill of `size` tokens. If the same runner and size are measured several times, the smallest
  // time is kept, because disturbances only add time.
  void add(RunnerKind runner, std::int64_t size, double ms);
  bool measured(RunnerKind runner, std::int64_t size) const;
  bool empty() const { return measured_.empty(); }
  std::size_t size() const { return measured_.size(); }
  // Returns the measured sizes of the runner, ascending.
  std::vector<std::int64_t> sizes(RunnerKind runner) const;

  // Returns the cost of a size. If a size was measured to be slower than a larger size, its measurement counts as
  // disturbed, and the larger size's measurement is used instead. Costs are linear between measured sizes. Above the
  // largest measured size they are proportional to the size, and below the smallest one they are constant. Returns
  // nothing if the size was not measured and fewer than two sizes of the runner have measurements.
  std::optional<double> ms(RunnerKind runner, std::int64_t size) const;

  // Records the comparison for a captured prefill size. It replaces an earlier comparison.
  void add_full(std::int64_t size, FullCost cost) { full_[size] = cost; }
  std::optional<FullCost> full(std::int64_t size) const;
  // Returns whether dispatch uses the size's full graph. Dispatch does so if the full graph's results were equal to the
  // results of the pieces, and if FullCost::ratio times kFullMargin is below 1. The ratio already allows for the noise
  // of the measurement.
  bool full_wins(std::int64_t size) const;

  // Writes and reads {"prefill": [[size, ms], …], "decode": …, "eager": …, "full": [[size, ratio, equal], …]}.
  // from_json() returns kDataLoss for any other form, for sizes outside 1 … 2^20, and for times or ratios that are not
  // finite and positive.
  Json to_json() const;
  static Result<CostTable> from_json(const Json& json);

 private:
  std::map<std::pair<RunnerKind, std::int64_t>, double> measured_;
  // The values of measured_ after a correction. If a size was measured to be slower than a larger size, it has the
  // value of the larger size.
  std::map<std::pair<RunnerKind, std::int64_t>, double> costs_;
  std::map<std::int64_t, FullCost> full_;
};

}  // namespace tessera
