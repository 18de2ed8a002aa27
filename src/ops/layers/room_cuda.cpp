#include <array>

#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/layers/decoder_layers.h"

namespace tessera {

void add_layers_cuda(KernelList& list) { list.add_joined(std::array{joined_decoder_layers()}); }

}  // namespace tessera
