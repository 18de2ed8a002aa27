// Latent attention's direct form on CUDA (latent_attention.h): keys and values of all heads are made from the rows of
// the cache, into scratch memory; then attention is over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/ops/attention/attention.h"
#include "tessera/ops/latent/latent_attention.h"
#include "tessera/ops/latent/latent_forms.h"

namespace tessera {

// What the direct form takes of a forward of the bucket's rows. Without memory for its keys: `least_rows` is INT_MAX.
struct LatentDirect {
  LatentForms forms;
  std::size_t workspace_bytes = 0;
};
Result<LatentDirect> find_latent_direct(const BindArgs& args);

// Writes the rows of requests in the direct form and no others. Precondition: forms.least_rows is not INT_MAX, and its
// addresses are the plan's.
Result<std::unique_ptr<BoundOp>> bind_latent_direct(const BindArgs& args, const LatentForms& forms,
                                                    const AttentionMetadata& metadata);

}  // namespace tessera
