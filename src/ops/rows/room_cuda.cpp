#include <array>

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

void add_rows_cuda(KernelList& list) {
  list.add({kAddCuda,     kAddGatedCuda, kAddRmsNormCuda,  kCastCuda,  kCopyCuda, kGatherRowsCuda,
            kGeluCuda,    kGeluMulCuda,  kHeadNormCuda,    kJoinCuda,  kMulCuda,  kQuickGeluCuda,
            kRmsNormCuda, kRotaryCuda,   kRotaryTableCuda, kScaleCuda, kSiluCuda, kSiluMulCuda,
            kSoftcapCuda, kSplitCuda,    kWeightedRowsCuda});
  list.add_joined(std::array{kNormTwiceCuda});
}

}  // namespace tessera
