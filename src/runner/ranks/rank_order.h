// What rank 0 asks of the other ranks beside forwards, and how it goes into messages. Every rank does the same at the
// same time, and rank 0 goes on once all have answered: that is the barrier after the warm-up and around each capture.
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

// The numbers are part of the messages' form.
enum class RankOrderKind : std::uint8_t {
  kPlan = 1,           // size: requests, 0 as the options say; open the device and plan; answers RankLimits
  kLoad = 2,           // with the agreed RankLimits: load the weights, make the runner
  kPrepare = 3,        // take the memory of the largest forward, warm up
  kCapture = 4,        // role, size
  kDrop = 5,           // role, size: it has no graph on some rank
  kCaptureFull = 6,    // size, of the prefill runner, as one graph
  kDropFull = 7,       // size
  kStageDummy = 8,     // role, size: inputs of a batch that no request asked for
  kStagePages = 9,     // size: those of a batch whose every row is defined
  kReplay = 10,        // role, size, form: of what is staged
  kRunEagerly = 11,    // role, size: the operators of what is staged
  kForget = 12,        // role, size: what kRunEagerly has bound
  kAvailable = 13,     // answers the bytes left of the device's memory
  kReserveRows = 14,   // size: rows of embeddings that have memory
  kCaptureTower = 15,  // the tower's next size, or with kTowersStart in `size` those of a start
  kEncodeImages = 16,  // images to rows of embeddings
  kForward = 17,
  kCollect = 18,  // the oldest forward's results; answers their digest
  kMemory = 19,   // answers the memory that the rank takes
  kVerify = 20,   // the oracle, by every rank for itself
  kSoak = 21,     // batches, seed, tolerance; the same
  kDiscard = 22,  // the newest forward failed somewhere: it is in flight no more
};
inline constexpr int kLastRankOrder = 22;
inline constexpr std::int64_t kTowersStart = 1;

// An order of a few numbers; those that a kind does not name are 0.
struct RankOrder {
  RankOrderKind kind = RankOrderKind::kPlan;
  RunnerRole role = RunnerRole::kPrefill;
  std::int64_t size = 0;  // kSoak: batches
  GraphForm form = GraphForm::kPieces;
  std::uint64_t seed = 0;  // of kSoak
  double tolerance = 0;    // of kSoak
};
void pack_order(const RankOrder& order, MessageWriter& to);
Result<RankOrder> unpack_order(RankOrderKind kind, MessageReader& from);

// What ranks have to agree on before they load: sizes that each would capture, and pages that each has room for.
struct RankLimits {
  std::vector<std::int64_t> num_pages;  // [cache groups]
  std::vector<std::int64_t> prefill_sizes;
  std::vector<std::int64_t> decode_sizes;
  std::vector<std::int64_t> vision_sizes;
  std::int64_t max_requests = 0;

  // What fits both. kInvalidArgument where they differ in what a plan is made with.
  Status agree(const RankLimits& other);
  friend bool operator==(const RankLimits&, const RankLimits&) = default;
};
void pack_limits(const RankLimits& limits, MessageWriter& to);
Result<RankLimits> unpack_limits(MessageReader& from);

// Images and the rows that each begins at (VisionRunner::encode).
struct ReceivedImages {
  std::vector<Patches> images;
  std::vector<std::int64_t> first_rows;
};
void pack_images(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows, MessageWriter& to);
Result<ReceivedImages> unpack_images(MessageReader& from);

// Its bytes by use and what is left, without the runners' sizes.
void pack_memory(const MemoryReport& report, MessageWriter& to);
Result<MemoryReport> unpack_memory(MessageReader& from);

}  // namespace tessera
