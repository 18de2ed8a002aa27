#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/rows/activation.h"
#include "tessera/ops/rows/add_gated.h"
#include "tessera/ops/rows/elementwise.h"
#include "tessera/ops/rows/gather.h"
#include "tessera/ops/rows/join.h"
#include "tessera/ops/rows/norm.h"
#include "tessera/ops/rows/rotary.h"
#include "tessera/ops/rows/view.h"
#include "tessera/ops/rows/weighted_rows.h"

namespace tessera {

void add_rows(OpList& list) {
  list.add(
      {&kAdd,    &kAddGated,    &kAddRmsNorm, &kCast, &kCopy,    &kEmpty,     &kEmptyLike, &kGatherRows,
       &kGelu,   &kGeluMul,     &kHeadNorm,   &kJoin, &kMul,     &kQuickGelu, &kReshape,   &kRmsNorm,
       &kRotary, &kRotaryTable, &kScale,      &kSilu, &kSiluMul, &kSoftcap,   &kSplit,     &kWeightedRows},
      {kAddCpu,         kAddGatedCpu, kAddRmsNormCpu, kCastCpu,    kCopyCpu,      kGatherRowsCpu, kGeluCpu,
       kGeluMulCpu,     kHeadNormCpu, kJoinCpu,       kMulCpu,     kQuickGeluCpu, kRmsNormCpu,    kRotaryCpu,
       kRotaryTableCpu, kScaleCpu,    kSiluCpu,       kSiluMulCpu, kSoftcapCpu,   kSplitCpu,      kWeightedRowsCpu});
}

}  // namespace tessera
