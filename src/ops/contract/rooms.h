// A room is a folder of ops/. This file declares the functions with which rooms add their operators. The first function
// of a room, in its room.cpp, adds the declarations and the CPU's kernels. The second, in its room_cuda.cpp, adds
// CUDA's kernels and is a part of the CUDA backend. Two rooms also have functions that set other members of a Backend.
#pragma once

#include "tessera/ops/contract/backend.h"
#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_rows(OpList& list);        // activations, norms, rotation, arithmetic, views
void add_embedding(OpList& list);   // token ids, and rows of the embedding table
void add_linear(OpList& list);      // matrix products
void add_adapters(OpList& list);    // the terms that low-rank adapters add to matrix products
void add_quantised(OpList& list);   // products with quantised matrices
void add_attention(OpList& list);   // attention over pages of keys and values
void add_cache(OpList& list);       // stores of keys and values to their pages
void add_latent(OpList& list);      // attention over latents, and their store
void add_recurrent(OpList& list);   // gated delta nets, with their convolutions and gates
void add_moe(OpList& list);         // routing and experts
void add_vision(OpList& list);      // operators of vision towers
void add_sampling(OpList& list);    // operators that turn logits into tokens and log-probabilities
void add_collective(OpList& list);  // exchanges between ranks and stages

void add_rows_cuda(KernelList& list);
void add_embedding_cuda(KernelList& list);
void add_linear_cuda(KernelList& list);
void add_adapters_cuda(KernelList& list);
void add_quantised_cuda(KernelList& list);
void add_attention_cuda(KernelList& list);
void add_cache_cuda(KernelList& list);
void add_latent_cuda(KernelList& list);
void add_recurrent_cuda(KernelList& list);
void add_moe_cuda(KernelList& list);
void add_vision_cuda(KernelList& list);
void add_sampling_cuda(KernelList& list);
void add_collective_cuda(KernelList& list);
void add_layers_cuda(KernelList& list);  // the kernel that runs all layers of a decode

void add_linear_algorithms_cuda(Backend& backend);  // sets cuBLASLt's start, versions and algorithms
void add_row_kernels_cpu(Backend& backend);         // sets Backend::row_kernels, as does the next function
void add_row_kernels_cuda(Backend& backend);

}  // namespace tessera
