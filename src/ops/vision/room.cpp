#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/vision/axial_rotary.h"
#include "tessera/ops/vision/layer_norm.h"
#include "tessera/ops/vision/segment_attention.h"

namespace tessera {

void add_vision(OpList& list) {
  list.add({&kAxialTable, &kLayerNorm, &kRotateHeads, &kSegmentAttention},
           {kAxialTableCpu, kLayerNormCpu, kRotateHeadsCpu, kSegmentAttentionCpu});
}

}  // namespace tessera
