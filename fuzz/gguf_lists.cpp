#include "gguf_lists.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tessera::fuzz {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Writer {
 public:
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view text) {
    put<std::uint64_t>(text.size());
    bytes_ += text;
  }
  void raw(std::string_view bytes) { bytes_ += bytes; }
  void pad(std::size_t alignment) { bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Returns the alignment that the metadata state if it is small, otherwise the usual one.
std::size_t alignment_of(const GgufLists& file) {
  std::uint32_t stated = 0;
  for (const GgufLists::Pair& pair : file.pairs)
    if (pair.key == "general.alignment" && pair.elements.size() == 1 && pair.elements[0].size() == sizeof stated)
      std::memcpy(&stated, pair.elements[0].data(), sizeof stated);
  return std::has_single_bit(stated) && stated <= 256 ? stated : 32;
}

}  // namespace

std::optional<GgufLists> GgufLists::read(std::span<const std::byte> bytes) {
  const auto parsed = GgufFile::parse(bytes, "seed");
  if (!parsed.ok()) return std::nullopt;
  GgufLists file;
  for (const std::string_view key : parsed->keys()) {
    const GgufValue& value = *parsed->find(key);
    Pair pair{.key = std::string(key), .type = value.type(), .is_list = value.is_list(), .elements = {}};
    if (value.type() == GgufType::kString) {
      const auto texts = value.is_list() ? *value.strings() : std::vector{*value.string()};
      pair.elements.assign(texts.begin(), texts.end());
    } else {
      const std::size_t size = gguf_type_bytes(value.type());
      for (std::size_t at = 0; at < value.bytes().size(); at += size)
        pair.elements.push_back(text_of(value.bytes().subspan(at, size)));
    }
    file.pairs.push_back(std::move(pair));
  }
  for (const GgufTensor& tensor : parsed->tensors())
    file.tensors.push_back({tensor.name, tensor.type, tensor.shape, text_of(tensor.data)});
  return file;
}

std::string GgufLists::write() const {
  const std::size_t alignment = alignment_of(*this);
  Writer out;
  out.raw("GGUF");
  out.put<std::uint32_t>(3);
  out.put<std::uint64_t>(tensors.size());
  out.put<std::uint64_t>(pairs.size());
  for (const Pair& pair : pairs) {
    out.text(pair.key);
    if (pair.is_list) out.put(GgufType::kArray);
    out.put(pair.type);
    if (pair.is_list) out.put<std::uint64_t>(pair.elements.size());
    for (const std::string& element : pair.elements)
      pair.type == GgufType::kString ? out.text(element) : out.raw(element);
  }
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    out.text(tensor.name);
    out.put(static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::size_t i = tensor.shape.size(); i-- > 0;) out.put<std::int64_t>(tensor.shape[i]);
    out.put(static_cast<std::uint32_t>(tensor.type));
    out.put(offset);
    offset += (tensor.data.size() + alignment - 1) / alignment * alignment;
  }
  for (const Tensor& tensor : tensors) {
    out.pad(alignment);
    out.raw(tensor.data);
  }
  return out.take();
}

GgufLists::Pair* GgufLists::find(std::string_view key) {
  const auto found = std::ranges::find(pairs, key, &Pair::key);
  return found != pairs.end() ? &*found : nullptr;
}

}  // namespace tessera::fuzz
