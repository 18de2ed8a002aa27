// The order to copy an adapter to a slot on every rank. Ranks of rank 0's process take their shares from its memory.
// Ranks of other processes get theirs in the message.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/model/adapters/adapter.h"
#include "tessera/net/message.h"

namespace tessera {

// Packs the shares of the ranks 1 and up.
void pack_shares(const Adapter& adapter, MessageWriter& to);
// Copies the share of the layout's rank to host memory, and reads the message to its end. kDataLoss for a message of
// another form, or one for another layout.
Result<AdapterShare> unpack_share(MessageReader& from, const AdapterLayout& layout, Device& device);

}  // namespace tessera
