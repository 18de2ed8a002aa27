// The table of faults and topologies. A row is a fault, which is a suite of one of the sources beside this file. A
// column is a topology (kTopologies in topologies.h).
//
//   o  at most the requests in flight fail, or a graph is dropped; the group goes on and computes the right tokens
//   x  all ranks end, and every error names the origin; in rows of the start, the start fails
//   .  not tested, since the topology cannot have the fault or other columns have the same cell
//
// A row without a cell does not compile. GoogleTest fails if a suite has no row.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "faults.h"

namespace tessera::testing {
namespace {

constexpr bool is_row(std::string_view cells) {
  std::size_t columns = 0;
  std::size_t tested = 0;
  for (const char c : cells) {
    if (c == ' ') continue;
    if (c != 'o' && c != 'x' && c != '.') return false;
    ++columns;
    if (c != '.') ++tested;
  }
  return columns == kTopologies.size() && tested > 0;
}

std::vector<Cell> cells_of(std::string_view cells) {
  std::vector<Cell> row;
  std::size_t column = 0;
  for (const char c : cells) {
    if (c == ' ') continue;
    if (c != '.') row.push_back({.of = kTopologies[column], .ends = c == 'x' ? Ends::kAll : Ends::kRequests});
    ++column;
  }
  return row;
}

std::string name_of(const ::testing::TestParamInfo<Cell>& info) { return info.param.of.name; }

#define ROW(FAULT, CELLS)                                                      \
  static_assert(is_row(CELLS), "a row has all columns and at least one cell"); \
  INSTANTIATE_TEST_SUITE_P(Of, FAULT, ::testing::ValuesIn(cells_of(CELLS)), name_of)

// clang-format off
// Kind                             tensor-parallel ranks         stages            engines   drafting
// Number of ranks                  2   2   2   2   4   4   4     2   2   3   4     2   2     2   2
// Number of nodes                  1   1   2   2   1   2   4     1   2   1   2     1   2     1   2
// Steps ahead                          +       +                 +   +   +   +
ROW(MissingMemory,               "  x   .   x   .   .   .   .     x   x   .   .     x   x     .   .  ");
ROW(FailedCapture,               "  o   .   o   .   .   .   .     o   o   .   .     x   x     .   .  ");
ROW(FailedIdleWork,              "  o   .   o   .   .   .   .     o   o   .   .     .   .     .   .  ");

ROW(FailedReplay,                "  o   o   o   o   o   o   .     o   o   o   o     x   x     .   .  ");
ROW(LostReplay,                  "  o   o   o   o   .   .   .     o   o   .   .     x   x     .   .  ");
ROW(FailedLaunch,                "  o   .   o   .   o   o   .     o   o   o   o     .   .     .   .  ");
ROW(RepeatedFault,               "  o   o   o   o   .   .   .     o   o   .   .     .   .     .   .  ");
ROW(RepeatedFaultOfTheLastPiece, "  o   o   o   o   .   .   .     .   .   .   .     .   .     .   .  ");
ROW(FaultAmongRequests,          "  o   o   o   o   .   .   .     o   o   .   .     .   .     .   .  ");
ROW(FaultBeforeLaterSteps,       "  .   o   .   o   .   .   .     o   o   .   .     .   .     .   .  ");
ROW(FaultAfterTheLastSum,        "  .   o   .   o   .   .   .     .   .   .   .     .   .     .   .  ");

ROW(FailedDraft,                 "  .   .   .   .   .   .   .     .   .   .   .     .   .     o   o  ");
ROW(RepeatedFaultOfADraft,       "  .   .   .   .   .   .   .     .   .   .   .     .   .     o   o  ");

ROW(LostDevice,                  "  x   x   x   x   x   x   .     x   x   x   x     x   x     x   x  ");
ROW(LostDeviceAtAnAdapter,       "  x   .   x   .   .   .   .     x   x   .   .     .   .     .   .  ");
ROW(HangingRank,                 "  x   .   x   .   .   .   .     .   .   .   .     .   .     .   .  ");
ROW(LostConnection,              "  x   .   .   .   .   .   .     .   .   .   .     .   .     .   .  ");
ROW(FailureBetweenForwards,      "  .   .   .   .   .   .   .     .   .   .   .     x   x     .   .  ");
ROW(LeavingNode,                 "  .   .   x   .   .   x   x     .   x   .   x     .   .     .   .  ");
ROW(NodeLeavingAmidSteps,        "  .   .   x   x   .   .   .     .   x   .   x     .   .     .   x  ");
ROW(TruncatedValue,              "  .   .   .   .   .   .   .     .   x   .   x     .   .     .   .  ");
// clang-format on

}  // namespace
}  // namespace tessera::testing
