#include "tessera/ops/cache/kv_store.h"
#include "tessera/ops/cache/qkv_rope_store.h"
#include "tessera/ops/contract/rooms.h"

namespace tessera {

void add_cache(OpList& list) { list.add({&kKvStore, &kQkvRopeStore}, {kKvStoreCpu, kQkvRopeStoreCpu}); }

}  // namespace tessera
