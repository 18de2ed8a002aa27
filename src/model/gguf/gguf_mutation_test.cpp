// Catches: crashes and hangs on damaged GGUF files. The tests read thousands of deterministic mutations of small files.
// From each accepted file they make the config, the tensors and the tokenizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "tessera/base/json.h"
#include "tessera/base/testing/paths.h"
#include "tessera/model/family.h"
#include "tessera/model/gguf/gguf_config.h"
#include "tessera/model/gguf/gguf_tensors.h"
#include "tessera/model/gguf/gguf_texts.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

// Counts how many files passed each stage.
struct Accepted {
  int files = 0;
  int configs = 0;
  int tensors = 0;
  int tokenizers = 0;
};

void read_ends(const StoredTensor& tensor) {
  if (tensor.made == nullptr) return;
  const std::int64_t count = std::min<std::int64_t>(tensor.num_elements(), 300);
  std::vector<std::byte> elements(static_cast<std::size_t>(count * stored_dtype_bytes(tensor.dtype)));
  tensor.made->read(0, count, elements.data());
  tensor.made->read(tensor.num_elements() - count, count, elements.data());
}

void use(const std::string& bytes, Accepted& accepted) {
  auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "mutated");
  if (!file.ok()) return;
  ++accepted.files;
  const GgufModel model = GgufModel::of(*std::move(file));
  const auto config = gguf_config(model);
  if (config.ok() && ModelConfig::from_json(*config, "mutated", built_in_families()).ok()) ++accepted.configs;
  if (const auto tensors = read_gguf_tensors(model); tensors.ok()) {
    ++accepted.tensors;
    std::ranges::for_each(tensors->tensors, read_ends);
  }
  (void)gguf_generation_config(model);
  (void)gguf_tokenizer_config(model);
  const auto lists = gguf_token_lists(model);
  if (lists.ok() && Tokenizer::create(*lists).ok()) ++accepted.tokenizers;
}

TEST(GgufMutation, DamagedFilesNeverCrash) {
  std::mt19937 random(11);
  Accepted whole;
  for (const char* name : {"llama", "qwen35", "gemma4", "nvfp4"}) {
    const std::string seed = *read_text_file(testing::source_path(std::string("fuzz/corpus/gguf/") + name + ".gguf"));
    use(seed, whole);
    Accepted mutated;
    for (int i = 0; i < 4000; ++i) {
      std::string bytes = seed;
      const std::size_t changes = 1 + random() % 3;
      for (std::size_t change = 0; change < changes; ++change) {
        const std::size_t at = random() % bytes.size();
        switch (random() % 4) {
          case 0: bytes[at] = static_cast<char>(random() % 256); break;
          case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8)); break;
          case 2: bytes.erase(at, random() % 9); break;
          default: bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 9));
        }
      }
      use(bytes, mutated);
    }
    std::printf("%s: of 4000 mutated files %d are read, with %d configs, %d lists of tensors, %d tokenizers\n", name,
                mutated.files, mutated.configs, mutated.tensors, mutated.tokenizers);
    EXPECT_GT(mutated.files, 100) << name;
    EXPECT_GT(mutated.configs, 0) << name;
  }
  EXPECT_EQ(whole.files, 4);
  EXPECT_EQ(whole.configs, 4);
  EXPECT_EQ(whole.tensors, 4);
  EXPECT_EQ(whole.tokenizers, 3);  // the file with NVFP4 has none
}

}  // namespace
}  // namespace tessera
