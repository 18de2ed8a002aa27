#include "tessera/ops/built_in_ops.h"

#include "tessera/ops/contract/rooms.h"

namespace tessera {
namespace {

const OpList& all_rooms() {
  static const OpList list = [] {
    OpList all;
    add_rows(all);
    add_embedding(all);
    add_linear(all);
    add_adapters(all);
    add_quantised(all);
    add_attention(all);
    add_cache(all);
    add_latent(all);
    add_recurrent(all);
    add_moe(all);
    add_vision(all);
    add_sampling(all);
    add_collective(all);
    return all;
  }();
  return list;
}

}  // namespace

const ir::OpTable& built_in_ops() {
  static const ir::OpTable table(all_rooms().ops);
  return table;
}

const KernelTable& cpu_kernels() {
  static const KernelTable table(all_rooms().cpu_kernels);
  return table;
}

}  // namespace tessera
