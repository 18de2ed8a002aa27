// Catches: crashes on a GGUF file, on the config, tensors and tokenizer made from it, on a projector, or on an
// importance matrix; tensors with bytes outside of the file.
#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fuzz.h"
#include "tessera/base/json.h"
#include "tessera/model/family.h"
#include "tessera/model/gguf/gguf_config.h"
#include "tessera/model/gguf/gguf_projector.h"
#include "tessera/model/gguf/gguf_tensors.h"
#include "tessera/model/gguf/gguf_texts.h"
#include "tessera/model/gguf/importance_matrix.h"
#include "tessera/text/tokenizer.h"

using namespace tessera;

namespace {

// Reads the first and the last elements of a tensor.
void read_ends(const StoredTensor& tensor) {
  if (tensor.made == nullptr) return;
  const std::int64_t count = std::min<std::int64_t>(tensor.num_elements(), 300);
  std::vector<std::byte> elements(static_cast<std::size_t>(count * stored_dtype_bytes(tensor.dtype)));
  tensor.made->read(0, count, elements.data());
  tensor.made->read(tensor.num_elements() - count, count, elements.data());
}

// Returns the language models beside which a projector is read. They are seeds.
const std::vector<GgufFile>& language_models() {
  static std::deque<std::string> kept;  // the bytes that the files borrow
  static const std::vector<GgufFile> kModels = [] {
    std::vector<GgufFile> models;
    for (const char* name : {"qwen2vl.gguf", "qwen3vl.gguf"}) {
      kept.push_back(*read_text_file(fuzz::source_path(std::string("fuzz/corpus/gguf/") + name)));
      models.push_back(*GgufFile::parse(std::as_bytes(std::span(kept.back())), name));
    }
    return models;
  }();
  return kModels;
}

void read_projector(const GgufFile& file) {
  for (const GgufFile& language_model : language_models()) {
    const auto config = gguf_config(GgufModel::of(language_model, file));
    if (config.ok()) (void)ModelConfig::from_json(*config, "input", built_in_families());
  }
  const GgufModel projector = GgufModel::of(file);
  (void)projector_processor(projector);
  const auto tensors = read_projector_tensors(projector);
  if (tensors.ok()) std::ranges::for_each(tensors->tensors, read_ends);
}

bool has_text(const GgufFile& file, std::string_view key, std::string_view text) {
  const GgufValue* value = file.find(key);
  return value != nullptr && value->string() == text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  auto file = GgufFile::parse(bytes, "input");
  if (!file.ok()) return 0;
  for (const GgufTensor& tensor : file->tensors()) {
    const std::less_equal<const std::byte*> before;
    fuzz::require(before(bytes.data(), tensor.data.data()) &&
                      before(tensor.data.data() + tensor.data.size(), bytes.data() + bytes.size()),
                  "a tensor lies in its file");
  }
  for (const std::string_view key : file->keys()) {
    const GgufValue* value = file->find(key);
    fuzz::require(value != nullptr && !value->shown().empty(), "a key is found and has a value to show");
    value->integers();
    value->numbers();
    value->booleans();
    value->strings();
  }
  // This parses the input again, and refuses every other type at once.
  if (has_text(*file, "general.type", "imatrix"))
    if (const auto matrix = parse_importance(bytes, "input"); matrix.ok())
      for (const ImportanceEntry& entry : matrix->entries)
        fuzz::require(!entry.counts.empty() && entry.sums.size() % entry.counts.size() == 0, "sums have whole rows");
  if (has_text(*file, "general.architecture", "clip")) read_projector(*file);
  const GgufModel model = GgufModel::of(*std::move(file));
  const auto config = gguf_config(model);
  if (config.ok()) (void)ModelConfig::from_json(*config, "input", built_in_families());
  const auto tensors = read_gguf_tensors(model);
  if (tensors.ok()) std::ranges::for_each(tensors->tensors, read_ends);
  (void)gguf_tokenizer_config(model);
  (void)gguf_generation_config(model);
  (void)gguf_embedding_config(model);
  const auto lists = gguf_token_lists(model);
  if (!lists.ok()) return 0;
  const auto tokenizer = Tokenizer::create(*lists);
  if (tokenizer.ok()) (void)tokenizer->encode("Some text, and 12345.\n");
  return 0;
}
