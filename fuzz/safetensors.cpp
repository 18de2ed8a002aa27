// Catches: crashes on a safetensors file; tensors with bytes outside the file or with a number of bytes that
// contradicts their shape.
#include "tessera/model/weights/safetensors.h"

#include <functional>

#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = SafetensorsFile::parse(bytes, "input");
  if (!file.ok()) return 0;
  for (const StoredTensor& tensor : file->tensors()) {
    if (!tensor.data.empty()) {
      const std::less_equal<const std::byte*> before;
      fuzz::require(before(bytes.data(), tensor.data.data()) &&
                        before(tensor.data.data() + tensor.data.size(), bytes.data() + bytes.size()),
                    "a tensor lies in its file");
    }
    const auto wanted = tensor_bytes(tensor.shape, tensor.dtype);
    fuzz::require(wanted == static_cast<std::int64_t>(tensor.data.size()), "a tensor has the bytes of its shape");
    fuzz::require(file->find(tensor.name) == &tensor, "a tensor is found by its name");
  }
  return 0;
}
