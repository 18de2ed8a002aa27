// Binds latent attention's direct form on CUDA (latent_attention.h). This form first makes the keys and values of all
// heads from the rows of the cache and writes them to scratch memory. Then it attends over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/ops/attention/attention.h"
#include "tessera/ops/latent/latent_attention.h"
#include "tessera/ops/latent/latent_forms.h"

namespace tessera {

// The direct form's settings for a forward with the bucket's number of rows, and the workspace that the direct form
// needs. If the direct form does not support the operands, the forward or the device, `least_rows` is INT_MAX.
struct LatentDirect {
  LatentForms forms;
  std::size_t workspace_bytes = 0;
};
Result<LatentDirect> find_latent_direct(const BindArgs& args);

// Binds the kernels that compute the rows of requests in the direct form, and no other rows. Precondition:
// forms.least_rows is not INT_MAX, and the addresses in `forms` are the plan's.
Result<std::unique_ptr<BoundOp>> bind_latent_direct(const BindArgs& args, const LatentForms& forms,
                                                    const AttentionMetadata& metadata);

}  // namespace tessera
