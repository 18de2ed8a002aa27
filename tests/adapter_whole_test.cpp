// Catches: an adapter's head or embedding that does not replace the model's own, or that is applied to rows of other
// adapters; a captured graph that, with such an adapter, gives other results than its kernels launched one by one.
#include <gtest/gtest.h>

#include <algorithm>

#include "adapter_golden.h"
#include "golden.h"
#include "golden_cases.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/engine.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::distance;
using testing::folder_of;
using testing::Golden;
using testing::load;
using testing::make_engine;
using testing::options_for;
using testing::read_golden_folder;
using testing::run_one;
using testing::scored;

// One adapter replaces the embedding and the head, one changes them by low-rank matrices, and one leaves them alone.
TEST(WholeMatricesOfAdapters, MixWithOtherAdapters) {
  EngineOptions options = options_for("llama", /*slots=*/3);
  options.deterministic = true;
  options.disable_radix_cache = true;
  options.adapters.limits.targets = testing::targets_of("llama-lora/r4-embed-head");
  options.adapters.limits.saved = {"embed_tokens", "lm_head"};
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests;
  for (const std::string name : {"r8-save-embed-head", "r4-embed-head", "r16-pattern"}) {
    ASSERT_TRUE(load(*engine, name, folder_of("llama-lora/" + name)).ok());
    const Golden golden = read_golden_folder(folder_of("llama-lora/" + name));
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      requests.push_back(scored(golden.prompts[i], name));
      requests.push_back(scored(golden.prompts[i], ""));
    }
  }
  const Result<std::vector<Completion>> together = engine->run(requests);
  ASSERT_TRUE(together.ok()) << together.status().to_string();
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ((*together)[i].logits, run_one(*engine, requests[i]).logits) << requests[i].adapter << " " << i;
  const Result<VerifyReport> report = verify(engine->runner(), false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  for (const VerifyRow& row : report->rows) EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
}

// The adapter's embedding is a copy of the model's embedding. The adapter's head is the model's head times -1, so all
// logits change their sign.
class WholeMatrices : public ::testing::TestWithParam<const char*> {};

TEST_P(WholeMatrices, ReplaceTheModelsOwn) {
  EngineOptions options = options_for(GetParam());
  options.adapters.limits.saved = {"embed_tokens", "lm_head"};
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  const SafetensorsFile model = *SafetensorsFile::open(options.model_path + "/model.safetensors");
  const auto find = [&](const std::string& ending) {
    return std::ranges::find_if(model.tensors(), [&](const StoredTensor& t) { return t.name.ends_with(ending); });
  };
  const auto table = find("embed_tokens.weight");
  const auto head = find("lm_head.weight");
  ASSERT_NE(table, model.tensors().end());
  const StoredTensor& of_head = head == model.tensors().end() ? *table : *head;
  std::vector<float> values(static_cast<std::size_t>(of_head.num_elements()));
  ASSERT_TRUE(copy_tensor(of_head, StoredDtype::kF32, std::as_writable_bytes(std::span(values))).ok());
  for (float& value : values) value = -value;
  StoredTensor own_table = *table;
  own_table.name = "base_model.model.model.embed_tokens.weight";
  const StoredTensor own_head{.name = "base_model.model.lm_head.weight",
                              .dtype = StoredDtype::kF32,
                              .shape = of_head.shape,
                              .data = std::as_bytes(std::span(values))};
  const test::ScratchDir folder;
  ASSERT_TRUE(write_safetensors(folder.path() + "/adapter_model.safetensors", std::vector{own_table, own_head}).ok());
  folder.write("adapter_config.json", R"({"r": 2, "modules_to_save": ["embed_tokens", "lm_head"]})");
  ASSERT_TRUE(load(*engine, "tuned", folder.path()).ok());
  const std::vector<TokenId> prompt = testing::read_golden(GetParam()).prompts[0];
  std::vector<float> negative = run_one(*engine, scored(prompt, "")).logits;
  for (float& value : negative) value = -value;
  EXPECT_LE(distance(run_one(*engine, scored(prompt, "tuned")).logits, negative).relative, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, WholeMatrices,
                         ::testing::Values("llama3-rope-tied", "gemma2", "gemma3", "qwen3-moe", "qwen3.5-text",
                                           "quantised/llama-awq"),
                         testing::case_name);

}  // namespace
}  // namespace tessera
