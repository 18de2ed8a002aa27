#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/embedding/embedding.h"

namespace tessera {

void add_embedding_cuda(KernelList& list) { list.add({kAddGivenCuda, kEmbeddingCuda, kResolveIdsCuda}); }

}  // namespace tessera
