#include "tessera/ops/cache/kv_store.h"
#include "tessera/ops/cache/qkv_rope_store.h"
#include "tessera/ops/contract/rooms.h"

namespace tessera {

void add_cache_cuda(KernelList& list) { list.add({kKvStoreCuda, kQkvRopeStoreCuda}); }

}  // namespace tessera
