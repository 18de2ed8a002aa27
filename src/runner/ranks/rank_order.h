// The orders that rank 0 gives the other ranks, in addition to forwards, and their encoding in messages. Every rank
// carries an order out at the same time, and rank 0 continues once all have answered. Orders therefore act as barriers
// after the warm-up and around each capture.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/image/patches.h"
#include "tessera/net/message.h"
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/memory/memory_report.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {

// The numbers are part of the message format. Each comment first lists the values that the order carries, then says
// what a rank does, and then what the rank answers.
enum class RankOrderKind : std::uint8_t {
  kPlan = 1,         // size: requests, or 0 for the number in the options; open the device and plan; answers RankLimits
  kLoad = 2,         // followed by the agreed RankLimits: load the weights and make the runner
  kPrepare = 3,      // take the memory of the largest forward, warm up
  kCapture = 4,      // role, size: capture the size
  kDrop = 5,         // role, size: drop the graph, which some rank could not capture or replay
  kCaptureFull = 6,  // size: capture the prefill runner's forward as one graph
  kDropFull = 7,     // size: drop the prefill runner's full graph
  kStageDummy = 8,   // role, size: stage the inputs of a dummy batch
  kStagePages = 9,   // size: stage the inputs of a batch in which every row has defined values
  kReplay = 10,      // role, size, form: replay on the staged inputs
  kRunEagerly = 11,  // role, size: run the operators on the staged inputs
  kForget = 12,      // role, size: unbind the size that kRunEagerly bound
  kAvailable = 13,   // answers the free device memory in bytes
  kReserveRows = 14,   // size: number of embedding rows that get memory
  kCaptureTower = 15,  // capture the tower's next size or, if `size` is kTowersStart, all sizes that a start captures
  kEncodeImages = 16,  // encode images to rows of embeddings
  kForward = 17,
  kCollect = 18,       // collect the oldest forward; answers the digest of its results
  kMemory = 19,        // answers the memory that the rank takes
  kVerify = 20,        // run the oracle (verify/verify.h), each rank on its own
  kSoak = 21,          // run soak() with batches, seed and tolerance; each rank on its own
  kDiscard = 22,       // drop the newest forward, which failed on some rank
  kReadDrafts = 23,    // run the body of the next-token layer or draft model on rows
  kDraft = 24,         // run the head of the next-token layer or draft model on rows, and draft tokens
  kWriteAdapter = 25,  // slot, shares: copy an adapter to a slot (adapter_order.h)
};
inline constexpr int kLastRankOrder = 25;
inline constexpr std::int64_t kTowersStart = 1;

// An order and its numbers. Numbers that a kind does not use are 0.
struct RankOrder {
  RankOrderKind kind = RankOrderKind::kPlan;
  RunnerRole role = RunnerRole::kPrefill;
  std::int64_t size = 0;  // number of batches for kSoak
  GraphForm form = GraphForm::kPieces;
  std::uint64_t seed = 0;  // for kSoak
  double tolerance = 0;    // for kSoak
};
void pack_order(const RankOrder& order, MessageWriter& to);
Result<RankOrder> unpack_order(RankOrderKind kind, MessageReader& from);

// Limits that ranks agree on before they load: the sizes that each rank would capture, and the pages that it has room
// for.
struct RankLimits {
  std::vector<std::int64_t> num_pages;  // [cache groups]
  std::vector<std::int64_t> prefill_sizes;
  std::vector<std::int64_t> decode_sizes;
  std::vector<std::int64_t> vision_sizes;
  std::int64_t max_requests = 0;

  // Reduces the limits to those that fit both ranks. Returns kInvalidArgument if their plans were made from different
  // inputs.
  Status agree(const RankLimits& other);
  friend bool operator==(const RankLimits&, const RankLimits&) = default;
};
void pack_limits(const RankLimits& limits, MessageWriter& to);
Result<RankLimits> unpack_limits(MessageReader& from);

// Received images, and the embedding row where each begins (VisionRunner::encode).
struct ReceivedImages {
  std::vector<Patches> images;
  std::vector<std::int64_t> first_rows;
};
void pack_images(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows, MessageWriter& to);
Result<ReceivedImages> unpack_images(MessageReader& from);

// Packs the bytes of each use and the free memory. Leaves out the runners' sizes.
void pack_memory(const MemoryReport& report, MessageWriter& to);
Result<MemoryReport> unpack_memory(MessageReader& from);

}  // namespace tessera
