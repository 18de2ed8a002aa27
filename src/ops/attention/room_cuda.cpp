#include "tessera/ops/attention/attention.h"
#include "tessera/ops/contract/rooms.h"

namespace tessera {

void add_attention_cuda(KernelList& list) { list.add({kAttentionCuda}); }

}  // namespace tessera
