// What forwards cost, as measured: milliseconds by runner and size, of replays and of eager runs.
// Between measured sizes costs are interpolated; where nothing was measured there is no cost, and dispatch pads.
//
// Costs are of one request without cached prefix: attention over a longer context costs a padded and an unpadded
// forward the same.
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

// A prefill size's full graph, with attention inside, beside its pieces.
struct FullCost {
  double ratio = 1;    // its replay's time over the pieces': a bound that the median stays below (full_measurement.h)
  bool equal = false;  // both were seen to come to the same bits
};

// What a full graph has to win, beside the bound's own margin: what is won must be worth a graph's memory.
inline constexpr double kFullMargin = 1.01;

class CostTable {
 public:
  // A measured forward: of kPrefill and kDecode a replay at the captured size, of kEager a prefill of so many tokens.
  // Of several measurements of one key the smallest stays: what disturbs one only adds to it.
  void add(RunnerKind runner, std::int64_t size, double ms);
  bool measured(RunnerKind runner, std::int64_t size) const;
  bool empty() const { return measured_.empty(); }
  std::size_t size() const { return measured_.size(); }
  // Measured ones, ascending.
  std::vector<std::int64_t> sizes(RunnerKind runner) const;

  // No more than a larger size took: more rows cost no less, so that it was the smaller one's measurement that was
  // disturbed. Linear between the two measured neighbours, in proportion beyond the largest; below the smallest, the
  // smallest's. None where fewer than two sizes of the runner were measured and this one is not among them.
  std::optional<double> ms(RunnerKind runner, std::int64_t size) const;

  // Of a captured prefill size: the last measurement stays.
  void add_full(std::int64_t size, FullCost cost) { full_[size] = cost; }
  std::optional<FullCost> full(std::int64_t size) const;
  // Whether the size's full graph is to be taken: measured to be equal, and faster by more than measurements differ by.
  bool full_wins(std::int64_t size) const;

  // {"prefill": [[size, ms], …], "decode": …, "eager": …, "full": [[size, ratio, equal], …]}; from_json ignores
  // nothing: kDataLoss for another form, for sizes outside 1 … 2^20 and times and ratios that are not finite and
  // positive.
  Json to_json() const;
  static Result<CostTable> from_json(const Json& json);

 private:
  std::map<std::pair<RunnerKind, std::int64_t>, double> measured_;
  std::map<std::pair<RunnerKind, std::int64_t>, double> costs_;  // [measured_]: never less for a larger size
  std::map<std::int64_t, FullCost> full_;
};

}  // namespace tessera
