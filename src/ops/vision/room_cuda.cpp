#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/vision/axial_rotary.h"
#include "tessera/ops/vision/layer_norm.h"
#include "tessera/ops/vision/segment_attention.h"

namespace tessera {

void add_vision_cuda(KernelList& list) {
  list.add({kAxialTableCuda, kLayerNormCuda, kRotateHeadsCuda, kSegmentAttentionCuda});
}

}  // namespace tessera
