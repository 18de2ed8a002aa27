#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/latent/latent_attention.h"
#include "tessera/ops/latent/latent_store.h"

namespace tessera {

void add_latent(OpList& list) { list.add({&kLatentAttention, &kLatentStore}, {kLatentAttentionCpu, kLatentStoreCpu}); }

}  // namespace tessera
