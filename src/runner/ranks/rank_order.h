// The orders that rank 0 gives the other ranks in addition to forwards, and the encoding of orders in messages. All
// ranks carry out an order at the same time, and rank 0 continues after all of them have answered. Orders therefore act
// as barriers after the warm-up and around each capture.
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

// The numbers are part of the message format. The comment on a kind first lists the values that an order of this kind
// carries. After the colon it says what each rank does, and then what each rank answers.
enum class RankOrderKind : std::uint8_t {
  kPlan = 1,           // size (requests, or 0 for the number in the options): open the device, plan; answers RankLimits
  kLoad = 2,           // followed by the agreed RankLimits: load the weights and make the runner
  kPrepare = 3,        // allocate the memory of the largest forward, and warm up
  kCapture = 4,        // role, size: capture the size
  kDrop = 5,           // role, size: drop the graph, because some rank could not capture or replay it
  kCaptureFull = 6,    // size: capture the prefill runner's forward as one graph
  kDropFull = 7,       // size: drop the prefill runner's full graph
  kStageDummy = 8,     // role, size: stage the inputs of a dummy batch
  kStagePages = 9,     // size: stage the inputs of a batch in which every row has defined values
  kReplay = 10,        // role, size, form: replay on the staged inputs
  kRunEagerly = 11,    // role, size: run the operators on the staged inputs
  kForget = 12,        // role, size: unbind the size that kRunEagerly bound
  kAvailable = 13,     // answers the free device memory in bytes
  kReserveRows = 14,   // size: commit memory for this number of embedding rows
  kCaptureTower = 15,  // capture the tower's next size or, if `size` is kTowersStart, all sizes that a start captures
  kEncodeImages = 16,  // images: encode them to rows of embeddings
  kForward = 17,
  kCollect = 18,       // collect the oldest forward; answers the digest of its results
  kMemory = 19,        // answers the memory that the rank takes
  kVerify = 20,        // run the oracle (verify/verify.h) on each rank separately
  kSoak = 21,          // batches, seed, tolerance: run soak() with them on each rank separately
  kDiscard = 22,       // drop the newest forward, which failed on some rank
  kReadDrafts = 23,    // rows: run the body of the next-token layer or draft model on them
  kDraft = 24,         // rows: run the head of the next-token layer or draft model on them, and draft tokens
  kWriteAdapter = 25,  // slot, shares: copy an adapter to a slot (adapter_order.h)
};
inline constexpr int kLastRankOrder = 25;
inline constexpr std::int64_t kTowersStart = 1;

// An order and its values. Values that a kind does not use keep their defaults.
struct RankOrder {
  RankOrderKind kind = RankOrderKind::kPlan;
  RunnerRole role = RunnerRole::kPrefill;
  std::int64_t size = 0;  // for kSoak the number of batches
  GraphForm form = GraphForm::kPieces;
  std::uint64_t seed = 0;  // for kSoak
  double tolerance = 0;    // for kSoak
};
void pack_order(const RankOrder& order, MessageWriter& to);
Result<RankOrder> unpack_order(RankOrderKind kind, MessageReader& from);

// Limits that the ranks agree on before they load the model: the sizes that a rank would capture, and the number of
// pages for which it has memory.
struct RankLimits {
  std::vector<std::int64_t> num_pages;  // number of pages in each cache group
  std::vector<std::int64_t> prefill_sizes;
  std::vector<std::int64_t> decode_sizes;
  std::vector<std::int64_t> vision_sizes;
  std::int64_t max_running = 0;  // requests that run at once

  // Reduces these limits to limits that fit both ranks. Returns kInvalidArgument if the two ranks planned from
  // different inputs.
  Status agree(const RankLimits& other);
  friend bool operator==(const RankLimits&, const RankLimits&) = default;
};
void pack_limits(const RankLimits& limits, MessageWriter& to);
Result<RankLimits> unpack_limits(MessageReader& from);

// Received images, and the first embedding row of each image (VisionRunner::encode).
struct ReceivedImages {
  std::vector<Patches> images;
  std::vector<std::int64_t> first_rows;
};
void pack_images(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows, MessageWriter& to);
Result<ReceivedImages> unpack_images(MessageReader& from);

// Packs the free memory and the bytes of each use, but not the memory of each runner.
void pack_memory(const MemoryReport& report, MessageWriter& to);
Result<MemoryReport> unpack_memory(MessageReader& from);

}  // namespace tessera
