// Random changes of a GGUF file's metadata and tensors.
#pragma once

#include "gguf_lists.h"
#include "random_changes.h"

namespace tessera::fuzz {

// Gives the model another architecture, and its keys the architecture's prefix.
void change_architecture(GgufLists& file, Random& random);
// Changes, removes or copies a pair. Precondition: the file has pairs.
void mutate_pairs(GgufLists& file, Random& random);
// Changes, removes or copies a tensor. Precondition: the file has tensors.
void mutate_tensors(GgufLists& file, Random& random);

}  // namespace tessera::fuzz
