#include "tessera/ops/attention/attention.h"
#include "tessera/ops/contract/rooms.h"

namespace tessera {

void add_attention(OpList& list) { list.add({&kAttention}, {kAttentionCpu}); }

}  // namespace tessera
