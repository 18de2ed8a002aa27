#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "gguf_changes.h"
#include "gguf_names.h"

namespace tessera::fuzz {
namespace {

constexpr std::string_view kArchitecture = "general.architecture";

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

void mutate_element(GgufLists::Pair& pair, Random& random) {
  if (pair.elements.empty()) return;
  std::string& element = one_of(pair.elements, random);
  if (pair.type != GgufType::kString) {
    mutate_number(element, random);
  } else if (below(2, random) == 0) {
    element = one_of(kTexts, random);
  } else {
    mutate_text(element);
  }
}

void mutate_length(GgufLists::Pair& pair, Random& random) {
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

void mutate_type(GgufLists::Pair& pair, Random& random) {
  GgufType type = static_cast<GgufType>(below(kGgufTypes, random));
  if (type == GgufType::kArray) type = GgufType::kString;
  for (std::string& element : pair.elements) {
    if (type != GgufType::kString) element.resize(gguf_type_bytes(type));
    if (type == GgufType::kBool) element[0] &= 1;
    if (type == GgufType::kString && pair.type != GgufType::kString) element = one_of(kTexts, random);
  }
  pair.type = type;
}

std::string some_key(GgufLists& file, Random& random) {
  const GgufLists::Pair* const architecture = file.find(kArchitecture);
  if (below(3, random) == 0 || architecture == nullptr || architecture->elements.empty())
    return one_of(kWholeKeys, random);
  return architecture->elements[0] + "." + one_of(kKeys, random);
}

}  // namespace

void change_architecture(GgufLists& file, Random& random) {
  GgufLists::Pair* const architecture = file.find(kArchitecture);
  if (architecture == nullptr || architecture->elements.size() != 1) return;
  const std::string from = std::exchange(architecture->elements[0], one_of(kArchitectures, random)) + ".";
  for (GgufLists::Pair& pair : file.pairs)
    if (pair.key.starts_with(from)) pair.key.replace(0, from.size() - 1, architecture->elements[0]);
}

void mutate_pairs(GgufLists& file, Random& random) {
  GgufLists::Pair& pair = one_of(file.pairs, random);
  switch (below(8, random)) {
    case 0: pair.key = some_key(file, random); break;
    case 1: mutate_text(pair.key); break;
    case 2: mutate_type(pair, random); break;
    case 3: mutate_length(pair, random); break;
    case 4: file.pairs.erase(file.pairs.begin() + (&pair - file.pairs.data())); break;
    case 5: {
      GgufLists::Pair copy = pair;
      copy.key = some_key(file, random);
      file.pairs.push_back(std::move(copy));
      break;
    }
    default: mutate_element(pair, random);
  }
}

}  // namespace tessera::fuzz
