#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/embedding/embedding.h"

namespace tessera {

void add_embedding(OpList& list) {
  list.add({&kAddGiven, &kEmbedding, &kResolveIds}, {kAddGivenCpu, kEmbeddingCpu, kResolveIdsCpu});
}

}  // namespace tessera
