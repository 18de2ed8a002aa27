// The rows of the table of faults (table.cpp): a suite for each fault. The sources beside this file have their tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>

#include "group.h"
#include "tessera/base/testing/leaves_no_thread.h"

namespace tessera::testing {

// What a fault ends on a topology.
enum class Ends {
  kRequests,  // at most the requests in flight; the group goes on
  kAll,       // all ranks
};

struct Cell {
  Topology of;
  Ends ends = Ends::kRequests;
};
inline void PrintTo(const Cell& cell, std::ostream* to) { *to << cell.of.name; }

// A fault on a topology. Every test compares what the fault ends with what the cell says.
class FaultTest : public test::LeavesNoThread, public ::testing::WithParamInterface<Cell> {
 protected:
  void SetUp() override {
    plans = {};
    right_tokens(of());
    LeavesNoThread::SetUp();
  }
  static const Topology& of() { return GetParam().of; }
  static bool ends_all() { return GetParam().ends == Ends::kAll; }
  // Checks that the group has ended if the cell says so, and that it goes on otherwise. `n` appears in the messages.
  static void expect_end(Group& group, std::int64_t n = 0) {
    if (ends_all())
      group.expect_ended(n);
    else
      group.expect_right(n);
  }
};

// Faults while an engine starts, or in its idle work.
class MissingMemory : public FaultTest {};
class FailedCapture : public FaultTest {};
class FailedIdleWork : public FaultTest {};

// Faults of a forward.
class FailedReplay : public FaultTest {};
class LostReplay : public FaultTest {};
class FailedLaunch : public FaultTest {};
class RepeatedFault : public FaultTest {};
class RepeatedFaultOfTheLastPiece : public FaultTest {};
class FaultAmongRequests : public FaultTest {};
class FaultBeforeLaterSteps : public FaultTest {};
class FaultAfterTheLastSum : public FaultTest {};

// Faults of a draft.
class FailedDraft : public FaultTest {};
class RepeatedFaultOfADraft : public FaultTest {};

// Faults after which a rank or a node takes part in nothing more.
class LostDevice : public FaultTest {};
class LostDeviceAtAnAdapter : public FaultTest {};
class HangingRank : public FaultTest {};
class LostConnection : public FaultTest {};
class FailureBetweenForwards : public FaultTest {};
class LeavingNode : public FaultTest {};
class NodeLeavingAmidSteps : public FaultTest {};
class TruncatedValue : public FaultTest {};

}  // namespace tessera::testing
