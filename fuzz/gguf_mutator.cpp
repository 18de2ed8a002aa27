// Mutates GGUF files as lists of metadata and tensors. Nearly all changes of single bytes in such a file make a length,
// a count or an offset wrong, and the file is refused before a config is made of it.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf_names.h"
#include "tessera/model/gguf/gguf_file.h"
#include "tessera/text/unicode.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace tessera {
namespace {

constexpr std::string_view kArchitecture = "general.architecture";
constexpr std::size_t kMostText = 4096;
constexpr std::size_t kMostElements = 4096;  // in one tensor

using Random = std::minstd_rand;

std::size_t below(std::size_t count, Random& random) { return random() % count; }

template <class List>
auto& one_of(List& list, Random& random) {
  return list[below(std::size(list), random)];
}

struct Pair {
  std::string key;
  GgufType type;
  bool is_list;
  std::vector<std::string> elements;  // texts without their length
};

struct Tensor {
  std::string name;
  BlockType type;
  std::vector<std::int64_t> shape;
  std::string data;
};

struct File {
  std::vector<Pair> pairs;
  std::vector<Tensor> tensors;
};

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<File> read(std::span<const std::byte> bytes) {
  const auto parsed = GgufFile::parse(bytes, "seed");
  if (!parsed.ok()) return std::nullopt;
  File file;
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
std::size_t alignment_of(const File& file) {
  std::uint32_t stated = 0;
  for (const Pair& pair : file.pairs)
    if (pair.key == "general.alignment" && pair.elements.size() == 1 && pair.elements[0].size() == sizeof stated)
      std::memcpy(&stated, pair.elements[0].data(), sizeof stated);
  return std::has_single_bit(stated) && stated <= 256 ? stated : 32;
}

std::string write(const File& file) {
  const std::size_t alignment = alignment_of(file);
  Writer out;
  out.raw("GGUF");
  out.put<std::uint32_t>(3);
  out.put<std::uint64_t>(file.tensors.size());
  out.put<std::uint64_t>(file.pairs.size());
  for (const Pair& pair : file.pairs) {
    out.text(pair.key);
    if (pair.is_list) out.put(GgufType::kArray);
    out.put(pair.type);
    if (pair.is_list) out.put<std::uint64_t>(pair.elements.size());
    for (const std::string& element : pair.elements)
      pair.type == GgufType::kString ? out.text(element) : out.raw(element);
  }
  std::uint64_t offset = 0;
  for (const Tensor& tensor : file.tensors) {
    out.text(tensor.name);
    out.put(static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::size_t i = tensor.shape.size(); i-- > 0;) out.put<std::int64_t>(tensor.shape[i]);
    out.put(static_cast<std::uint32_t>(tensor.type));
    out.put(offset);
    offset += (tensor.data.size() + alignment - 1) / alignment * alignment;
  }
  for (const Tensor& tensor : file.tensors) {
    out.pad(alignment);
    out.raw(tensor.data);
  }
  return out.take();
}

// Changes bytes by libFuzzer's own mutations.
void mutate_bytes(std::string& bytes, std::size_t max_size) {
  const std::size_t size = bytes.size();
  bytes.resize(max_size);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, max_size));
}

// The text stays UTF-8.
void mutate_text(std::string& text) {
  if (text.size() > kMostText) return;
  mutate_bytes(text, text.size() + 32);
  if (find_invalid_utf8(text) == std::string_view::npos) return;
  for (char& c : text) c = static_cast<char>(c & 0x7f);
}

void mutate_number(std::string& bytes, Random& random) {
  const std::size_t size = bytes.size();
  if (below(2, random) == 0) {
    std::ranges::fill(bytes, '\0');
    bytes[0] = static_cast<char>(1 << below(8, random));
    if (below(2, random) == 0) bytes[0] = static_cast<char>(below(9, random));
  } else {
    mutate_bytes(bytes, size);
    bytes.resize(size);
  }
}

void mutate_element(Pair& pair, Random& random) {
  if (pair.elements.empty()) return;
  std::string& element = one_of(pair.elements, random);
  if (pair.type != GgufType::kString) {
    mutate_number(element, random);
  } else if (below(2, random) == 0) {
    element = one_of(fuzz::kTexts, random);
  } else {
    mutate_text(element);
  }
}

void mutate_length(Pair& pair, Random& random) {
  const std::size_t at = pair.elements.empty() ? 0 : below(pair.elements.size(), random);
  const auto place = pair.elements.begin() + static_cast<std::ptrdiff_t>(at);
  if (!pair.is_list) {
    pair.is_list = true;
  } else if (!pair.elements.empty() && below(3, random) == 0) {
    pair.elements.erase(place);
  } else {
    pair.elements.insert(place, pair.elements.empty() ? std::string(gguf_type_bytes(pair.type), '\1') : *place);
  }
}

void mutate_type(Pair& pair, Random& random) {
  GgufType type = static_cast<GgufType>(below(kGgufTypes, random));
  if (type == GgufType::kArray) type = GgufType::kString;
  for (std::string& element : pair.elements) {
    if (type != GgufType::kString) element.resize(gguf_type_bytes(type));
    if (type == GgufType::kBool) element[0] &= 1;
    if (type == GgufType::kString && pair.type != GgufType::kString) element = one_of(fuzz::kTexts, random);
  }
  pair.type = type;
}

Pair* find(File& file, std::string_view key) {
  const auto found = std::ranges::find(file.pairs, key, &Pair::key);
  return found != file.pairs.end() ? &*found : nullptr;
}

// Gives the model another architecture, and its keys the architecture's prefix.
void change_architecture(File& file, Random& random) {
  Pair* const architecture = find(file, kArchitecture);
  if (architecture == nullptr || architecture->elements.size() != 1) return;
  const std::string from = std::exchange(architecture->elements[0], one_of(fuzz::kArchitectures, random)) + ".";
  for (Pair& pair : file.pairs)
    if (pair.key.starts_with(from)) pair.key.replace(0, from.size() - 1, architecture->elements[0]);
}

std::string some_key(File& file, Random& random) {
  const Pair* const architecture = find(file, kArchitecture);
  if (below(3, random) == 0 || architecture == nullptr || architecture->elements.empty())
    return one_of(fuzz::kWholeKeys, random);
  return architecture->elements[0] + "." + one_of(fuzz::kKeys, random);
}

std::string some_tensor(Random& random) {
  if (below(3, random) == 0) return one_of(fuzz::kWholeTensors, random);
  return "blk." + std::to_string(below(2, random)) + "." + one_of(fuzz::kTensors, random);
}

void mutate_shape(Tensor& tensor, Random& random) {
  std::vector<std::int64_t> shape = tensor.shape;
  const BlockTypeInfo& type = below(3, random) == 0 ? one_of(kBlockTypes, random) : block_type_info(tensor.type);
  switch (below(4, random)) {
    case 0: std::ranges::reverse(shape); break;
    case 1: shape.insert(shape.begin(), 1); break;
    case 2:
      if (shape.size() > 1) shape.erase(shape.begin());
      break;
    default: one_of(shape, random) = static_cast<std::int64_t>(1 + below(9, random));
  }
  shape.back() = (shape.back() + type.elements - 1) / type.elements * type.elements;
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements = std::min<std::int64_t>(elements * size, kMostElements + 1);
  if (elements > static_cast<std::int64_t>(kMostElements) || shape.size() > GgufFile::kMaxRank) return;
  tensor.type = type.type;
  tensor.shape = std::move(shape);
  tensor.data.resize(static_cast<std::size_t>(elements / type.elements * type.bytes), '\x3c');
}

void mutate_pairs(File& file, Random& random) {
  Pair& pair = one_of(file.pairs, random);
  switch (below(8, random)) {
    case 0: pair.key = some_key(file, random); break;
    case 1: mutate_text(pair.key); break;
    case 2: mutate_type(pair, random); break;
    case 3: mutate_length(pair, random); break;
    case 4: file.pairs.erase(file.pairs.begin() + (&pair - file.pairs.data())); break;
    case 5: {
      Pair copy = pair;
      copy.key = some_key(file, random);
      file.pairs.push_back(std::move(copy));
      break;
    }
    default: mutate_element(pair, random);
  }
}

void mutate_tensors(File& file, Random& random) {
  Tensor& tensor = one_of(file.tensors, random);
  switch (below(6, random)) {
    case 0: tensor.name = some_tensor(random); break;
    case 1: mutate_text(tensor.name); break;
    case 2: file.tensors.erase(file.tensors.begin() + (&tensor - file.tensors.data())); break;
    case 3: {
      Tensor copy = tensor;
      copy.name = some_tensor(random);
      file.tensors.push_back(std::move(copy));
      break;
    }
    case 4: {
      const std::size_t size = tensor.data.size();
      mutate_bytes(tensor.data, size);
      tensor.data.resize(size);
      break;
    }
    default: mutate_shape(tensor, random);
  }
}

std::size_t copy_out(const std::string& bytes, std::uint8_t* to, std::size_t max_size) {
  if (bytes.size() > max_size) return 0;
  std::memcpy(to, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace
}  // namespace tessera

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace tessera;
  Random random(seed);
  if (below(4, random) != 0) {
    if (auto file = read(std::as_bytes(std::span(data, size)))) {
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
      if (const std::size_t made = copy_out(write(*file), data, max_size); made > 0) return made;
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

// Adds to the first file what it lacks of the second, each pair and each tensor by chance.
extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* first, std::size_t first_size,
                                                 const std::uint8_t* second, std::size_t second_size, std::uint8_t* out,
                                                 std::size_t max_size, unsigned seed) {
  using namespace tessera;
  Random random(seed);
  if (below(8, random) != 0) return 0;  // libFuzzer then tries the mutator, which it would else call only half the time
  auto file = read(std::as_bytes(std::span(first, first_size)));
  const auto other = read(std::as_bytes(std::span(second, second_size)));
  if (!file || !other) return 0;
  for (const Pair& pair : other->pairs) {
    if (below(2, random) == 0) continue;
    if (Pair* const there = find(*file, pair.key))
      *there = pair;
    else
      file->pairs.push_back(pair);
  }
  for (const Tensor& tensor : other->tensors)
    if (below(2, random) == 0 && std::ranges::find(file->tensors, tensor.name, &Tensor::name) == file->tensors.end())
      file->tensors.push_back(tensor);
  return copy_out(write(*file), out, max_size);
}
