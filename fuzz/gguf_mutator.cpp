// Mutates GGUF files as lists of metadata and tensors. Nearly all changes of single bytes in such a file make a length,
// a count or an offset wrong, and the file is refused before a config is made of it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "gguf_changes.h"
#include "gguf_lists.h"
#include "random_changes.h"

namespace {

std::size_t copy_out(const std::string& bytes, std::uint8_t* to, std::size_t max_size) {
  if (bytes.size() > max_size) return 0;
  std::memcpy(to, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace tessera::fuzz;
  Random random(seed);
  if (below(4, random) != 0) {
    if (auto file = GgufLists::read(std::as_bytes(std::span(data, size)))) {
      for (std::size_t change = 0; change <= below(3, random); ++change) {
        const std::size_t choice = below(16, random);
        if (choice == 0) {
          change_architecture(*file, random);
        } else if (choice < 10 ? !file->pairs.empty() : file->tensors.empty() && !file->pairs.empty()) {
          mutate_pairs(*file, random);
        } else if (!file->tensors.empty()) {
          mutate_tensors(*file, random);
        }
      }
      if (const std::size_t made = copy_out(file->write(), data, max_size); made > 0) return made;
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

// Adds to the first file what it lacks of the second, each pair and each tensor by chance.
extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* first, std::size_t first_size,
                                                 const std::uint8_t* second, std::size_t second_size, std::uint8_t* out,
                                                 std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  Random random(seed);
  if (below(8, random) != 0) return 0;  // libFuzzer then tries the mutator, which it would else call only half the time
  auto file = GgufLists::read(std::as_bytes(std::span(first, first_size)));
  const auto other = GgufLists::read(std::as_bytes(std::span(second, second_size)));
  if (!file || !other) return 0;
  for (const GgufLists::Pair& pair : other->pairs) {
    if (below(2, random) == 0) continue;
    if (GgufLists::Pair* const there = file->find(pair.key))
      *there = pair;
    else
      file->pairs.push_back(pair);
  }
  for (const GgufLists::Tensor& tensor : other->tensors)
    if (below(2, random) == 0 &&
        std::ranges::find(file->tensors, tensor.name, &GgufLists::Tensor::name) == file->tensors.end())
      file->tensors.push_back(tensor);
  return copy_out(file->write(), out, max_size);
}
