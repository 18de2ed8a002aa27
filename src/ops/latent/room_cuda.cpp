#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/latent/latent_attention.h"
#include "tessera/ops/latent/latent_store.h"

namespace tessera {

void add_latent_cuda(KernelList& list) { list.add({kLatentAttentionCuda, kLatentStoreCuda}); }

}  // namespace tessera
