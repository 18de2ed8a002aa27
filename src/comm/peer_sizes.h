// Gives the sizes of the device memory through which GPUs of one process exchange values (peer_exchange.h,
// peer_link.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/device/device.h"

namespace tessera::cuda {

// A mailbox consists of counters, followed by buffers of 16 MiB that are used in turn. In an all-reduce of one step
// (ReduceWay::kAtOnce), all other ranks write their values to the same buffer of a rank's mailbox. Each rank can
// therefore send 16 MiB / (ranks - 1) in a launch, for example 5.3 MiB between four ranks. In an all-reduce of two
// steps this limit is different (ops/collective/peer_collectives.cu). Larger all-reduces are split into several
// launches.
inline constexpr int kBuffers = 3;
inline constexpr std::size_t kBufferBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMailboxAt = kDeviceAlignment;
inline constexpr std::size_t kMailboxBytes = kMailboxAt + kBuffers * kBufferBytes;

// Each side of a link has memory with its turn counters (LinkTurns in peer_link.h) and the counters that the other side
// writes. On the receiver's side, slots follow.
inline constexpr int kLinkSlots = 4;  // a power of two, so that slots stay in sequence when counters wrap around
static_assert((kLinkSlots & (kLinkSlots - 1)) == 0);
inline constexpr std::int64_t kLinkSlotBytes = std::int64_t{16} << 20;  // larger values take several turns
inline constexpr std::size_t kLinkCountersAt = kDeviceAlignment;
inline constexpr std::size_t kLinkSlotsAt = kLinkCountersAt + kDeviceAlignment;

inline constexpr std::size_t link_bytes(bool receives) {
  return kLinkSlotsAt + (receives ? kLinkSlots * static_cast<std::size_t>(kLinkSlotBytes) : 0);
}

}  // namespace tessera::cuda
