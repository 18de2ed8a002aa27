#include "tessera/ops/attention/room.h"

#include "tessera/ops/attention/attention.h"

namespace tessera {

void add_attention(OpList& list) { list.add({&kAttention}, {kAttentionCpu}); }

}  // namespace tessera
