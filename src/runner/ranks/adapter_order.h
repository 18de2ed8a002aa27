// Encodes the RankOrder kWriteAdapter, which copies an adapter to a slot on every rank. Ranks in the same process as
// rank 0 read their shares of the adapter from memory. Ranks of other processes get their shares in the message.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/model/adapters/adapter.h"
#include "tessera/net/message.h"

namespace tessera {

// Packs the adapter's shares for ranks 1 and up. A rank's share is the part of the adapter that this rank needs.
void pack_shares(const Adapter& adapter, MessageWriter& to);
// Reads the whole message, and returns one rank's share in host memory. `layout` is the layout of this rank. Returns
// kDataLoss if the message is malformed or made for another layout.
Result<AdapterShare> unpack_share(MessageReader& from, const AdapterLayout& layout, Device& device);

}  // namespace tessera
